"use strict";
// The table of all questions. All text is put in as text, never as mark-up. Its state stands in the address after #,
// so that a link leads to a search or to an opened question: #q?find=Paris&show=worse&a=frozen&b=trained&open=q17
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("browser");
  if (!place || !data.questions) return;
  const PAGE = 20;
  const state = { find: "", show: "all", kind: "", sort: "id", a: data.a, b: data.b, open: "", page: 0 };
  const make = (tag, values = {}, ...inside) => {
    const one = document.createElement(tag);
    for (const [name, value] of Object.entries(values)) {
      if (name === "on") Object.entries(value).forEach(([event, act]) => one.addEventListener(event, act));
      else if (value !== null && value !== false) one.setAttribute(name, value === true ? "" : value);
    }
    one.append(...inside.filter((part) => part !== null));
    return one;
  };
  const score = (question, arm) => question.scores[data.arms.indexOf(arm)];
  const number = (value, sign) => {
    if (value === null || value === undefined) return "–";
    const text = data.share ? (100 * value).toFixed(0) : value.toFixed(2);
    return (sign && value > 0 ? "+" : "") + (Number(text) === 0 ? "0" : text);
  };
  const change = (question) => {
    const before = score(question, state.a), after = score(question, state.b);
    return before === null || after === null ? null : after - before;
  };
  const SHOW = { all: "all questions", better: "better", worse: "worse", same: "the same" };
  const SORT = { id: "as asked", change: "largest loss first", gain: "largest gain first" };
  const fits = { all: () => true, better: (d) => d > 0, worse: (d) => d < 0, same: (d) => d === 0 };

  const text = (n) => (n < 0 ? null : data.texts[n]);
  const searched = data.questions.map((one) => {
    const answers = Object.values(one.plays).map((play) => text(play[0]) || "");
    return [one.id, one.text, ...one.gold, ...answers].join("\n").toLowerCase();
  });
  const kinds = [...new Set(data.questions.map((one) => one.kind))].filter(Boolean).sort();

  const found = () => {
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = data.questions.filter((one, n) => {
      const moved = change(one);
      return (!state.kind || one.kind === state.kind) && words.every((word) => searched[n].includes(word)) &&
        (state.show === "all" || (moved !== null && fits[state.show](moved)));
    });
    if (state.sort === "id") return rows;
    const side = state.sort === "gain" ? -1 : 1;
    return [...rows].sort((x, y) => side * ((change(x) ?? 0) - (change(y) ?? 0)));
  };

  const passage = (n, gold) => {
    const [id, title, words] = data.passages[n];
    return make("p", { class: gold ? "passage gold" : "passage" },
      gold ? make("span", { class: "mark" }, "✓ gold") : null, make("b", {}, title || id), " ", words);
  };
  const side = (question, arm) => {
    const play = question.plays[data.arms.indexOf(arm)];
    const head = make("h4", {}, make("span", {}, arm), make("span", {}, `${data.metric}: ${number(score(question, arm))}`));
    if (!play) return make("section", { class: "play" }, head, make("p", { class: "soft" }, "Its searches were left out of this page."));
    const [answer, hops] = play;
    const items = hops.map(([query, said, status, passages]) => make("li", {},
      make("div", {}, make("span", { class: "soft" }, "asked: "), text(query)),
      ...passages.map((n) => passage(n, question.ids.includes(data.passages[n][0]))),
      text(said) || status ? make("p", { class: "said" }, make("span", { class: "soft" }, "read: "), make("b", {}, text(said) || ""),
        " ", make("span", { class: "soft" }, status.toLowerCase().replaceAll("_", " "))) : null));
    return make("section", { class: "play" }, head, items.length ? make("ol", {}, ...items) : make("p", { class: "soft" }, "never searched"),
      text(answer) === null ? null : make("p", { class: "said" }, make("span", { class: "soft" }, "answer: "), make("b", {}, text(answer) || "none")));
  };
  const titles = Object.fromEntries(data.passages.map(([id, title]) => [id, title]));
  const answers = data.questions.some((one) => one.gold.length), golds = answers ? "gold answer" : "gold passages";
  const named = (one) => one.ids.slice(0, 3).map((id) => titles[id] || id).concat(one.ids.length > 3 ? "…" : []);
  const opened = (question) => {
    const gold = question.ids.map((id) => (titles[id] ? `${titles[id]} (${id})` : id));
    return make("tr", { class: "opened" }, make("td", { colspan: 5, class: "whole" },
      gold.length ? make("p", { class: "goldlist" }, make("span", { class: "soft" }, "gold passages: "), gold.join(", ")) : null,
      make("div", { class: "sides" }, side(question, state.a), side(question, state.b))));
  };

  const select = (name, words, choices) => make("label", {}, words, make("select", {
    id: `q-${name}`, on: { change: (event) => set({ [name]: event.target.value, page: 0 }) } },
  ...Object.entries(choices).map(([value, label]) => make("option", { value }, label))));
  const arms = Object.fromEntries(data.arms.map((arm) => [arm, arm]));
  const find = make("input", { id: "q-find", type: "search", placeholder: "words of question, answer or id",
    on: { input: (event) => set({ find: event.target.value, page: 0 }) } });
  const count = make("p", { id: "q-count", role: "status", class: "soft" });
  const body = make("tbody"), heads = { a: make("th", { scope: "col" }), b: make("th", { scope: "col" }) };
  const turn = (by, words) => make("button", { type: "button", on: { click: () => set({ page: state.page + by }) } }, words);
  const back = turn(-1, "← before"), next = turn(1, "next →"), where = make("span", { class: "soft" });
  place.append(
    make("div", { class: "tools" }, make("label", { class: "find" }, "search", find), select("a", "arm", arms),
      select("b", "against", arms), select("show", "the second is", SHOW), select("sort", "order", SORT),
      kinds.length > 1 ? select("kind", "kind", { "": "all kinds", ...Object.fromEntries(kinds.map((k) => [k, k])) }) : null),
    count,
    make("table", { id: "q-table", class: "cards" },
      make("caption", {}, `${data.metric} of every question${data.share ? ", in percent" : ""}. Open one to read both arms side by side.`),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "question"), make("th", { scope: "col" }, golds),
        heads.a, heads.b, make("th", { scope: "col" }, "change"))), body),
    make("div", { class: "pager" }, back, where, next));

  const draw = () => {
    const rows = found(), pages = Math.max(1, Math.ceil(rows.length / PAGE));
    if (state.open && !state.placed) {
      const at = rows.findIndex((one) => one.id === state.open);
      if (at >= 0) state.page = Math.floor(at / PAGE);
      state.placed = true;
    }
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    for (const name of ["a", "b", "show", "sort", "kind"]) {
      const box = document.getElementById(`q-${name}`);
      if (box) box.value = state[name];
    }
    if (document.activeElement !== find) find.value = state.find;
    heads.a.textContent = state.a; heads.b.textContent = state.b;
    count.textContent = `${rows.length.toLocaleString("en")} of ${data.questions.length.toLocaleString("en")} questions`;
    body.replaceChildren(...rows.slice(state.page * PAGE, (state.page + 1) * PAGE).flatMap((one) => {
      const moved = change(one), here = one.id === state.open;
      const row = make("tr", { "data-id": one.id },
        make("th", { scope: "row" }, make("button", { type: "button", class: "question", "aria-expanded": String(here),
          on: { click: () => { set({ open: here ? "" : one.id }); focus(one.id); } } }, one.text),
        make("small", {}, [one.id, one.kind].filter(Boolean).join(" · "))),
        make("td", { "data-label": golds }, (answers ? one.gold : named(one)).join(" / ") || "–"),
        make("td", { class: "number", "data-label": state.a }, number(score(one, state.a))),
        make("td", { class: "number", "data-label": state.b }, number(score(one, state.b))),
        make("td", { "data-label": "change", class: moved > 0 ? "up" : moved < 0 ? "down" : "" }, number(moved, true)));
      return here ? [row, opened(one)] : [row];
    }));
    back.disabled = state.page === 0; next.disabled = state.page >= pages - 1;
    where.textContent = `page ${state.page + 1} of ${pages}`;
  };
  const focus = (id) => document.querySelector(`tr[data-id="${CSS.escape(id)}"] button`)?.focus();
  const set = (values) => {
    Object.assign(state, values);
    const chosen = ["find", "show", "kind", "sort", "a", "b", "open"].filter((name) => state[name]);
    const words = new URLSearchParams(chosen.map((name) => [name, state[name]]));
    try { history.replaceState(null, "", `#q?${words}`); } catch { /* a frame without an address of its own */ }
    draw();
  };
  const read = () => {
    if (!location.hash.startsWith("#q?")) return draw();
    const query = new URLSearchParams(location.hash.slice(3));
    for (const name of ["find", "show", "kind", "sort", "a", "b", "open"]) if (query.has(name)) state[name] = query.get(name);
    if (!(state.show in SHOW)) state.show = "all";
    if (!(state.sort in SORT)) state.sort = "id";
    for (const end of ["a", "b"]) if (!data.arms.includes(state[end])) state[end] = data[end];
    state.placed = false; state.page = 0;
    draw();
    (document.querySelector(`tr[data-id="${CSS.escape(state.open)}"]`) || document.getElementById("questions")).scrollIntoView();
  };
  addEventListener("hashchange", read);
  read();
})();
