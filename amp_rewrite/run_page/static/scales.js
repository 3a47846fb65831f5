// From numbers to places in a picture.

/** Return where round numbers between two lie: about `count` of them. */
function roundNumbers(least, most, count) {
  const rough = (most - least) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((found) => found >= rough) ?? 10 * size;
  const found = [];
  for (let number = Math.ceil(least / step); number * step <= most * (1 + 1e-9) && found.length < 20; number++) {
    found.push(Number((number * step).toPrecision(12)));
  }
  return found;
}

/** Return a scale from numbers to places, from `low` to `high`. */
function linearScale(numbers, low, high) {
  let least = Math.min(...numbers), most = Math.max(...numbers);
  if (least === most) {
    const room = Math.abs(least) / 10 || 1;
    least -= room;
    most += room;
  }
  const place = (number) => low + ((high - low) * (number - least)) / (most - least);
  return { place, ticks: roundNumbers(least, most, 4) };
}

/** Return a scale by powers of a base; what is not positive lies at the low end. */
function logScale(numbers, low, high, base) {
  const power = (number) => Math.log(number) / Math.log(base);
  const powers = numbers.filter((number) => number > 0).map(power);
  if (!powers.length) {
    return linearScale(numbers, low, high);
  }
  const least = Math.floor(Math.min(...powers) + 1e-9), most = Math.max(least + 1, Math.ceil(Math.max(...powers) - 1e-9));
  const place = (number) => low + ((high - low) * (Math.max(least, number > 0 ? power(number) : least) - least)) / (most - least);
  const stride = Math.ceil((most - least) / 5), ticks = [];
  for (let exponent = least; exponent <= most; exponent += stride) {
    ticks.push(base ** exponent);
  }
  return { place, ticks };
}
