// Elements of a page, and of a picture.

/** Return an element that holds texts and elements. */
function make(name, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Return an element of SVG with attributes. */
function shape(name, attributes, ...inside) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  element.append(...inside);
  return element;
}
