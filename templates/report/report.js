// SPDX-License-Identifier: Apache-2.0
// The script of a page: it finds rows, unfolds ranks and copies commands. Texts of machines are set as text.
(() => {
  "use strict";
  const byId = (name) => document.getElementById(name);

  const filterRows = () => {
    const text = byId("filter-text"), state = byId("filter-state"), count = byId("filter-count");
    if (!text) return;
    const rows = [...document.querySelectorAll("#filtered tbody tr")];
    // What is folded in a row, such as its pairs, names other rows.
    const shown = (cell) => [...cell.childNodes].filter((node) => node.nodeName !== "DETAILS");
    const textOf = (row) => [...row.cells].flatMap(shown).map((node) => node.textContent).join(" ").toLowerCase();
    const texts = new Map(rows.map((row) => [row, textOf(row)]));
    const apply = () => {
      const searched = text.value.toLowerCase();
      for (const row of rows) {
        const other = state.value === "!pass" ? row.dataset.state === "pass" : row.dataset.state !== state.value;
        row.hidden = (state.value && other) || !texts.get(row).includes(searched);
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    };
    text.addEventListener("input", apply);
    state.addEventListener("change", apply);
    apply();
  };

  // Ranks that need no attention: thousands are rows only when they are looked at.
  const unfold = () => {
    const place = byId("folded"), held = byId("folded-rows");
    if (!place) return;
    const { rank_log: pattern, rows } = JSON.parse(held.textContent);
    const cells = (entry, rank) => {
      const [host, , , name, state, text, after, log] = entry;
      const file = log || `logs/${pattern.replaceAll("{rank}", rank)}`;
      return [name || `rank${rank}`, rank < 0 ? "" : String(rank), host, state, text, after, file];
    };
    const all = rows.flatMap((entry) =>
      Array.from({ length: entry[2] - entry[1] + 1 }, (_, number) => cells(entry, entry[1] + number)));
    const head = [...place.querySelectorAll("th")].map((each) => each.textContent);
    const body = place.querySelector("tbody"), find = byId("folded-find"), most = 500;
    const show = () => {
      const text = find.value.toLowerCase();
      const found = all.filter((row) => row.join(" ").toLowerCase().includes(text));
      body.replaceChildren(...found.slice(0, most).map((row) => {
        const line = document.createElement("tr");
        row.forEach((value, at) => {
          const cell = document.createElement(at ? "td" : "th");
          if (at) cell.dataset.label = head[at];
          if (at === row.length - 1) {
            const link = document.createElement("a");
            link.href = link.textContent = value;
            cell.append(link);
          } else {
            cell.textContent = value;
          }
          line.append(cell);
        });
        return line;
      }));
      byId("folded-count").textContent = `${Math.min(found.length, most)} of ${all.length}`;
    };
    find.addEventListener("input", show);
    place.addEventListener("toggle", () => { if (place.open) show(); });
  };

  const copyCommands = () => {
    for (const code of document.querySelectorAll(".copy")) {
      const button = document.createElement("button");
      button.className = "copy-it";
      button.textContent = "copy";
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(code.textContent);
          button.textContent = "copied";
        } catch {
          // A browser may allow no page of a file to copy.
          getSelection().selectAllChildren(code);
          button.textContent = "selected: press Ctrl+C";
        }
      });
      code.after(button);
    }
  };

  filterRows();
  unfold();
  copyCommands();
})();
