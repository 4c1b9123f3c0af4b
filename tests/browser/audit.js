// What is wrong with the page that is open: a list of texts, empty if nothing is.
"use strict";
const problems = [];
const shown = (element) => `<${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""}${element.className && element.className.baseVal === undefined ? "." + element.className : ""}> ${(element.textContent || "").trim().slice(0, 40)}`;
const visible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });

// Landmarks and headings.
if (!document.documentElement.lang) problems.push("the page names no language");
if (!document.title.trim()) problems.push("the page has no title");
for (const [name, found] of [["main", document.querySelectorAll("main, [role=main]")], ["h1", document.querySelectorAll("h1")]]) {
  if (found.length !== 1) problems.push(`expected one ${name}, got ${found.length}`);
}
let last = 0;
for (const heading of document.querySelectorAll("main h1, main h2, main h3, main h4, main h5, main h6")) {
  const level = Number(heading.tagName[1]);
  if (visible(heading) && level > last + 1) problems.push(`a heading of level ${level} after one of level ${last}: ${shown(heading)}`);
  if (visible(heading)) last = level;
}
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of new Set(ids.filter((each, i) => ids.indexOf(each) !== i))) problems.push(`two elements have the id ${id}`);
for (const element of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls]")) {
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
    for (const id of (element.getAttribute(name) || "").split(/\s+/).filter(Boolean)) {
      if (!document.getElementById(id)) problems.push(`${name} names ${id}, which is not there: ${shown(element)}`);
    }
  }
}
for (const image of document.images) if (!image.hasAttribute("alt")) problems.push(`an image without alt: ${image.outerHTML.slice(0, 80)}`);
for (const image of document.images) if (visible(image) && image.complete && !image.naturalWidth) problems.push(`an image that cannot be shown: ${image.alt}`);

// Contrast of texts, as WCAG 2 computes it.
const parse = (text) => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  const scale = text.startsWith("color(") ? 255 : 1;
  return [...numbers.slice(0, 3).map((value) => value * scale), numbers.length > 3 ? numbers[3] : 1];
};
const over = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]).concat(1);
const luminance = (colour) => {
  const [r, g, b] = colour.map((value) => value / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let each = element; each; each = each.parentElement) layers.push(parse(getComputedStyle(each).backgroundColor));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(document.documentElement).colorScheme.includes("dark");
  return layers.reverse().reduce((below, layer) => over(layer, below), dark ? [18, 18, 18, 1] : [255, 255, 255, 1]);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const checked = new Set();
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || checked.has(element) || ["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "OPTION"].includes(element.tagName)) continue;
  checked.add(element);
  if (!visible(element) || element.closest(":disabled, svg, [aria-hidden=true]")) continue;
  const style = getComputedStyle(element);
  let opacity = 1;
  for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
  const ground = behind(element);
  const colour = parse(style.color);
  const ink = over([...colour.slice(0, 3), colour[3] * opacity], ground);
  const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05);
  const size = parseFloat(style.fontSize);
  const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  if (ratio < needed) problems.push(`contrast ${ratio.toFixed(2)} of ${style.color} on rgb(${ground.slice(0, 3).map(Math.round)}), expected ${needed}: ${shown(element)}`);
}

// Nothing reaches beyond the page, but what is inside an element that scrolls.
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) problems.push(`the page is ${document.documentElement.scrollWidth} pixels wide, the window ${width}`);
const scrolls = (element) => {
  for (let each = element.parentElement; each; each = each.parentElement) {
    if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(each).overflowX)) return true;
  }
  return false;
};
for (const element of document.querySelectorAll("main *")) {
  if (visible(element) && !scrolls(element) && element.getBoundingClientRect().right > width + 1) problems.push(`cut off at the right: ${shown(element)}`);
}
return [...new Set(problems)];
