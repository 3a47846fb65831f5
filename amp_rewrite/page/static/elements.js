// Elements of a page.

/** Return an element that holds texts and elements. */
function make(name, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}
