// SPDX-License-Identifier: Apache-2.0
// The page of a report: unpacks plotly.js, draws, follows the system's colours, and reads cells out.
// All texts of machines come as JSON and are set as text, or escaped where plotly reads a little HTML.
(async () => {
  "use strict";
  const byId = (name) => document.getElementById(name);
  const held = byId("figures");
  const figures = held ? JSON.parse(held.textContent) : [];

  const filterRows = () => {
    const text = byId("filter-text"), state = byId("filter-state"), count = byId("filter-count");
    if (!text) return;
    const rows = [...document.querySelectorAll("#filtered tbody tr")];
    const apply = () => {
      const searched = text.value.toLowerCase();
      for (const row of rows) {
        const other = state.value === "!pass" ? row.dataset.state === "pass" : row.dataset.state !== state.value;
        row.hidden = (state.value && other) || !row.textContent.toLowerCase().includes(searched);
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
    for (const code of document.querySelectorAll("code.copy")) {
      const button = document.createElement("button");
      button.className = "copy-it";
      button.textContent = "copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      });
      code.after(button);
    }
  };

  const loadLibrary = async () => {
    const packed = Uint8Array.from(atob(byId("library").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const colours = () => {
    const [text, line, back, panel] = ["text", "line", "back", "panel"].map(colour);
    const found = {
      paper_bgcolor: back, plot_bgcolor: panel, "font.color": text,
      "hoverlabel.bgcolor": back, "hoverlabel.bordercolor": text, "hoverlabel.font.color": text,
    };
    for (const axis of ["xaxis", "yaxis"]) found[`${axis}.gridcolor`] = found[`${axis}.linecolor`] = line;
    return found;
  };

  const describe = (figure, cell) => {
    const share = figure.median ? `, ${Math.round(100 * cell.busbw / figure.median)} % of the median` : "";
    const found = cell.busbw === null ? "no bandwidth" : `${Number(cell.busbw.toPrecision(3))} GB/s${share}`;
    const note = cell.note ? `; ${cell.note}` : "";
    return `${figure.hosts[cell.row]} with ${figure.hosts[cell.column]}: ${found}, ${cell.state}${note}`;
  };

  // Arrows go to the next measured pair in that direction, as most cells of a sparse matrix are empty.
  const readByKeyboard = (figure, place) => {
    const { cells } = figure, status = byId("pairs-cell");
    const worst = cells.filter((cell) => cell.state !== "pass").sort((a, b) => (a.busbw ?? -1) - (b.busbw ?? -1));
    let at = null;
    const nearest = (same, along, sign) => cells
      .filter((cell) => cell[same] === at[same] && sign * (cell[along] - at[along]) > 0)
      .sort((a, b) => sign * (a[along] - b[along]))[0];
    const furthest = (sign) => cells
      .filter((cell) => cell.row === at.row)
      .sort((a, b) => sign * (a.column - b.column))[0];
    const nextWorst = (step) => {
      const index = worst.indexOf(at);
      return worst[index < 0 ? 0 : (index + step + worst.length) % worst.length];
    };
    const show = (cell) => {
      at = cell;
      status.textContent = describe(figure, cell);
      const { row, column } = cell;
      // Cells smaller than a dot get a frame of a visible size.
      const edges = figure.hosts.length > 60
        ? { xsizemode: "pixel", ysizemode: "pixel", xanchor: column, yanchor: row, x0: -7, x1: 7, y0: -7, y1: 7 }
        : { x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5 };
      const line = { color: colour("text"), width: 3 };
      window.Plotly.relayout(place, { shapes: [{ type: "rect", line, ...edges }] });
    };
    const moves = {
      ArrowRight: () => nearest("row", "column", 1), ArrowLeft: () => nearest("row", "column", -1),
      ArrowDown: () => nearest("column", "row", 1), ArrowUp: () => nearest("column", "row", -1),
      Home: () => furthest(1), End: () => furthest(-1), PageDown: () => nextWorst(1), PageUp: () => nextWorst(-1),
    };
    place.addEventListener("focus", () => { if (!at) show(worst[0] ?? cells[0]); });
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "Enter" && at) {
        byId(`node-${at.row}`)?.focus();
      } else if (moves[event.key] && at) {
        const cell = moves[event.key]();
        if (cell) show(cell);
      } else {
        return;
      }
      event.preventDefault();
    });
    place.on("plotly_click", (event) => {
      const { row, column } = figure.points[event.points[0].pointNumber] ?? {};
      const cell = cells.find((other) => other.row === row && other.column === column);
      if (cell) show(cell);
    });
  };

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const draw = async (figure) => {
    const place = byId(figure.id);
    for (const [path, color] of Object.entries(colours())) {
      const names = path.split("."), last = names.pop();
      names.reduce((part, name) => (part[name] ??= {}), figure.layout)[last] = color;
    }
    if (figure.hosts) {
      const [trace] = figure.data;
      figure.points = trace.customdata.map((held) => held && {
        row: held[0], column: held[1], state: held[2], note: held[3], busbw: held[4],
      });
      figure.cells = figure.points.filter(Boolean);
      trace.text = figure.points.map((cell) => (cell ? escaped(describe(figure, cell)) : ""));
    }
    place.replaceChildren();
    if (figure.hosts) figure.data[1].marker.line.color = colour("text");
    await window.Plotly.newPlot(place, figure.data, figure.layout, { responsive: true, displaylogo: false });
    if (figure.hosts && figure.cells.length) readByKeyboard(figure, place);
  };

  filterRows();
  unfold();
  copyCommands();
  if (!figures.length) return;
  try {
    await loadLibrary();
    for (const figure of figures) await draw(figure);
  } catch (error) {
    const message = `This browser cannot draw the figure (${error.message}); the tables have its numbers.`;
    for (const figure of figures) byId(figure.id).textContent = message;
    throw error;
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of figures) {
      window.Plotly.relayout(byId(figure.id), colours());
      if (figure.hosts) window.Plotly.restyle(byId(figure.id), { "marker.line.color": colour("text") }, [1]);
    }
  });
  document.documentElement.dataset.drawn = "true";
})();
