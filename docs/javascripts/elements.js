/* Makes elements of pages: HTML and SVG. Used by replay.js and playground.js as `window.elements`. */
(() => {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";

  /** An element: attributes (on... are listeners), then children, of which false ones are left out. */
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== false && child !== undefined));
    return element;
  }

  function s(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  const classes = (...names) => names.filter(Boolean).join(" ");

  window.elements = { h, s, classes };
})();
