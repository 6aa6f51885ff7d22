// SPDX-License-Identifier: Apache-2.0
// Live updates, theme and keys. Every page can be read, filtered and clicked without it. The server escapes what it sends; it is inserted by
// one policy, the only one that the content security policy allows.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = (() => { try { return sessionStorage.getItem("theme"); } catch { return null; } })();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept; // before the page is drawn

  const begin = () => {
    const $ = (selector, within = document) => within.querySelector(selector);
    const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
    const own = window.trustedTypes ? trustedTypes.createPolicy("console", { createHTML: (text) => text }) : { createHTML: (text) => text };

    // ---- what is said to screen readers: one sentence in ten seconds at most
    let spoken = 0;
    const say = (words) => {
      if (Date.now() - spoken < 10000) return;
      spoken = Date.now();
      $("#say").textContent = words;
    };

    // ---- dark and light: the system's choice, until a person chooses
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const turn = () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { sessionStorage.setItem("theme", root.dataset.theme); } catch { /* kept for this page only */ }
    };
    $("#theme").hidden = false;
    $("#theme").addEventListener("click", turn);

    // ---- one tab stop for a drawing with many links; arrows move inside it
    const rove = (links) => links.forEach((link, at) => link.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = links[(at + step + links.length) % links.length];
      link.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    }));

    // ---- the map: point at a para and see its channels alone
    const lightUp = (map) => {
      const nodes = $$("a[data-p]", map);
      const edges = $$("path.edge", map);
      const show = (para) => {
        map.classList.toggle("sel", Boolean(para));
        const near = new Set([para]);
        edges.forEach((edge) => {
          const of = edge.dataset.s === para || edge.dataset.r === para;
          edge.classList.toggle("near", of);
          if (of) { near.add(edge.dataset.s); near.add(edge.dataset.r); }
        });
        nodes.forEach((node) => {
          node.classList.toggle("near", near.has(node.dataset.p));
          node.classList.toggle("self", node.dataset.p === para);
        });
      };
      nodes.forEach((node) => {
        node.addEventListener("mouseenter", () => show(node.dataset.p));
        node.addEventListener("focus", () => show(node.dataset.p));
        node.addEventListener("mouseleave", () => show(""));
        node.addEventListener("blur", () => show(""));
      });
    };
    const prepare = (within) => {
      $$("svg.strip", within).forEach((strip) => rove($$("a", strip)));
      $$("svg.map", within).forEach((map) => { rove($$("a", map)); lightUp(map); });
    };
    prepare(document);
    $$(".newest").forEach((box) => { box.scrollLeft = box.scrollWidth; }); // the newest block in sight

    // ---- live updates: parts of the page, once a second at most, never under the reader's eyes
    const pauseButton = $("#pause");
    const more = $("#more");
    const waiting = new Map();
    let paused = false;
    let source = null;
    const state = (word) => { $(".state", pauseButton).textContent = word; };
    const busy = (part) => part.matches(":hover, :focus-within") || (part.hasAttribute("data-list") && scrollY > 60);
    const read = (part) => Number($("[data-read]", part)?.dataset.read || 0);
    const put = (name, part, html) => {
      const before = new Set($$("[data-row]", part).map((row) => row.dataset.row));
      const had = read(part);
      const box = $(".scroll", part);
      const places = [part.scrollTop, part.scrollLeft, box?.scrollTop, box?.scrollLeft];
      part.innerHTML = own.createHTML(html);
      [part.scrollTop, part.scrollLeft] = places;
      if (box && $(".scroll", part)) [$(".scroll", part).scrollTop, $(".scroll", part).scrollLeft] = places.slice(2);
      prepare(part);
      tell();
      waiting.delete(name);
      if (part.hasAttribute("data-list")) {
        if (before.size) $$("[data-row]", part).filter((row) => !before.has(row.dataset.row)).forEach((row) => row.classList.add("fresh"));
        const news = read(part) - had;
        if (news > 0) say(`${news} new verdicts`);
        if (more) more.hidden = true;
      }
    };
    const flush = (all = false) => {
      for (const [name, html] of [...waiting]) {
        const part = $(`[data-part="${name}"]`);
        if (!part || part.hasAttribute("data-still")) waiting.delete(name);
        else if (all || (!paused && !busy(part))) put(name, part, html);
        else if (part.hasAttribute("data-list") && more) {
          const total = Number(/data-read="(\d+)"/.exec(html)?.[1] || 0);
          const news = total - read(part);
          $("#pending").textContent = news > 999 ? "999+ new" : news > 0 ? `${news} new` : "what is new";
          more.hidden = false;
        }
      }
    };
    const connect = () => {
      if (source) source.close();
      source = new EventSource(`/events?page=${encodeURIComponent(location.pathname + location.search)}`);
      source.addEventListener("parts", (event) => {
        Object.entries(JSON.parse(event.data)).forEach(([name, html]) => waiting.set(name, html));
        flush();
      });
      source.addEventListener("open", () => { document.body.classList.remove("stale"); if (!paused) state("Live"); });
      source.addEventListener("error", () => { document.body.classList.add("stale"); state("Stale"); });
    };
    const pause = () => {
      paused = !paused;
      pauseButton.setAttribute("aria-pressed", String(paused));
      pauseButton.classList.toggle("paused", paused);
      state(paused ? "Paused" : "Live");
      spoken = 0;
      say(paused ? "Updates are paused" : "Updates continue");
      if (!paused) flush();
    };
    if (document.body.hasAttribute("data-live") && window.EventSource) {
      pauseButton.hidden = false;
      pauseButton.addEventListener("click", pause);
      if (more) more.addEventListener("click", () => { scrollTo(0, 0); flush(true); });
      setInterval(flush, 1000); // what waited while somebody pointed at it
      document.addEventListener("visibilitychange", () => {
        if (!document.hidden) connect();
        else if (source) { source.close(); source = null; }
      });
      addEventListener("pagehide", () => source && source.close());
      if (!document.hidden) connect();
    }

    // ---- how long ago, once a second
    const ago = (ms) => {
      const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
      if (seconds < 120) return `${seconds} s ago`;
      if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
      return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
    };
    const tell = () => $$("time[data-ago]").forEach((time) => { time.textContent = ago(Number(time.dataset.ago)); });
    tell();
    setInterval(tell, 1000);

    // ---- keys, never while somebody types
    let g = false;
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
      if (g) {
        g = false;
        const link = $(`nav a[data-key="${CSS.escape(event.key)}"]`);
        if (link) { location.href = link.href; return; }
      }
      g = event.key === "g";
      if (event.key === "/") { event.preventDefault(); $(".find input").focus(); }
      if (event.key === "p" && !pauseButton.hidden) pause();
      if (event.key === "t") turn();
      if (event.key === "n" && more && !more.hidden) more.click();
    });
  };
  document.addEventListener("DOMContentLoaded", begin);
})();
