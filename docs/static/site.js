// Fold the groups of the sidebar, except that of this page. Give each cell of a table the name of its column, which
// site.css shows on narrow screens, and mark long names, which may break.
document.addEventListener("DOMContentLoaded", () => {
  const elsewhere = document.querySelector(".sidebar-tree .current") !== null;
  document.querySelectorAll(".sidebar-tree p.caption").forEach((caption, number) => {
    const group = document.createElement("details");
    const summary = document.createElement("summary");
    const list = caption.nextElementSibling;
    group.open = elsewhere ? list.querySelector(".current") !== null : number === 0;
    summary.className = "caption";
    summary.append(...caption.childNodes);
    caption.replaceWith(group);
    group.append(summary, list);
  });
  document.querySelectorAll("table.docutils").forEach((table) => {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows)
      [...row.cells].forEach((cell, column) => {
        if (cell.textContent.trim()) cell.dataset.column = names[column] ?? "";
      });
    table.classList.add("named");
    table.querySelectorAll("code").forEach((code) => code.classList.toggle("long", code.textContent.length > 24));
  });
});
