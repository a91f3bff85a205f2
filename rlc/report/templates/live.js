"use strict";
// Keeps the page up to date: it is fetched again and again, and what differs is changed in place, so
// that scroll positions, open cards, the focus and the selected text stay as they are.
globalThis.rlcLive = (() => {
  const keyOf = (node) => (node.nodeType === 1 && (node.id || node.dataset.key)) || "";
  const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  // Whether somebody is reading it: an open card stays, even if the page now shows other ones.
  const isRead = (node) => node.nodeType === 1 && "keep" in node.dataset && (node.open ||
    node.contains(document.activeElement) || getSelection().containsNode(node, true));

  const setAttributes = (old, fresh) => {
    const own = (name) => (name === "open" && old.nodeName === "DETAILS") ||
      (name === "style" && "ownStyle" in old.dataset);
    for (const { name } of [...old.attributes])
      if (!own(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  };

  const update = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== 1) { old.data = fresh.data; return; }
    if ("own" in old.dataset) return;
    setAttributes(old, fresh);
    const wanted = new Set([...fresh.childNodes].map(keyOf).filter(Boolean));
    for (const node of [...old.childNodes])
      if (keyOf(node) && !wanted.has(keyOf(node)) && !isRead(node)) node.remove();
    const keyed = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
    const passed = new Set();
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = keyOf(next);
      let have = key ? keyed.get(key) : at;
      if (!key && next.nodeType === 1)
        while (have && !alike(have, next) && !keyOf(have)) have = have.nextSibling;
      if (!have || !alike(have, next) || passed.has(have)) {
        old.insertBefore(document.importNode(next, true), at);
        continue;
      }
      // What lies between is not wanted there: moved or removed later, never the one that is kept.
      let between = at;
      while (between && between !== have) between = between.nextSibling;
      if (between) {
        while (at !== have) {
          const gone = at;
          at = at.nextSibling;
          if (!keyOf(gone)) gone.remove();
        }
        at = have.nextSibling;
      } else old.insertBefore(have, at);
      passed.add(have);
      update(have, next);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      if (!passed.has(gone) && !isRead(gone)) gone.remove();
    }
  };

  // Put a page in place of this one. What is at the top of the window stays there.
  const put = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const top = [...document.querySelectorAll("h2, h3, figure, details, tr, .turn, .card")]
      .find((node) => node.getBoundingClientRect().bottom > 0 && node.getBoundingClientRect().height);
    const before = top?.getBoundingClientRect().top;
    for (const part of ["head", "content"])
      update(document.getElementById(part), fresh.getElementById(part));
    update(document.querySelector("footer"), fresh.querySelector("footer"));
    document.title = fresh.title;
    rlcAxes.draw();
    if (scrollY > 0 && top?.isConnected)
      scrollBy({ top: top.getBoundingClientRect().top - before, behavior: "instant" });
  };
  return { put, update };
})();

{
  const PAUSE = 2000, QUIET = 5 * 60;  // milliseconds between requests; seconds without a step
  const head = document.getElementById("head"), bar = document.getElementById("live");
  let tag = "", lost = 0, why = "", seen = new Date(), waiting = 0;
  const clock = (when) => when.toLocaleTimeString();
  const say = () => {
    const quiet = Date.now() / 1000 - Number(head.dataset.updated || Infinity);
    const running = head.dataset.state === "running";
    const texts = {
      lost: `✕ ${why} since ${clock(seen)}: trying again`,
      quiet: `● live, but no step has ended for ${Math.round(quiet / 60)} minutes`,
      running: `● live, looked at ${clock(seen)}`,
      none: `● live, looked at ${clock(seen)}`,
      ended: `■ not running; looked at ${clock(seen)}, goes on if it is resumed`,
    };
    const state = lost > 1 ? "lost" : head.dataset.state === "none" ? "none" :
      !running ? "ended" : quiet > QUIET ? "quiet" : "running";
    bar.hidden = false;
    bar.className = state;
    bar.textContent = texts[state];
  };
  const look = async () => {
    clearTimeout(waiting);
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname, {
        headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store",
      });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        rlcLive.put(await answer.text());
      } else if (answer.status !== 304) throw new Error((await answer.text()).trim());
      lost = 0;
      seen = new Date();
    } catch (error) {
      lost += 1;
      why = error instanceof TypeError ? "no answer from rlc watch" : error.message;
    }
    say();
    // A page that takes long to make is asked for less often.
    const pause = Math.max(PAUSE, 4 * (performance.now() - began)) * Math.min(8, 1 + lost);
    waiting = setTimeout(() => { if (!document.hidden) look(); }, pause);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  if (location.protocol.startsWith("http")) look();
}
