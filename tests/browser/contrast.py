"""Contrast as WCAG 2 defines it, measured in the browser on the colours that are really shown."""

from __future__ import annotations

from playwright.sync_api import Page

_MEASURE = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const check = (colour, node, least, what) => {
    const found = ratio(parse(colour), behind(node));
    if (found < least) faint.push(`${what}: ${found.toFixed(2)} < ${least}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || node.closest('svg, style')) continue;
    const style = getComputedStyle(node);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    check(style.color, node, large ? 3 : 4.5, text.slice(0, 40));
  }
  for (const bar of document.querySelectorAll('.fill, rect.goes, rect.held'))
    check(getComputedStyle(bar).fill, bar.closest('.card, body'), 3, 'a bar');
  return faint;
}"""


def faint_texts(page: Page) -> list[str]:
    """List the texts and bars that stand out too little from what is behind them."""
    return list(page.evaluate(_MEASURE))
