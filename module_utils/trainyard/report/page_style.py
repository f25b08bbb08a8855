# SPDX-License-Identifier: Apache-2.0
"""How a report's page looks: light or dark as the system is, down to the width of a phone."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --panel: #f4f6f8; --line: #d3d9df; --text: #1b2127; --soft: #55606b; --link: #0b57a4;
  --pass: #1b6e3c; --fail: #b3261e; --unknown: #8a5200; --skipped: #55606b; --focus: #0b57a4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14181c; --panel: #1e2429; --line: #3a434c; --text: #e6eaee; --soft: #a5b0ba; --link: #8ac0ff;
    --pass: #7ad39a; --fail: #ff9a90; --unknown: #f2b860; --skipped: #a5b0ba; --focus: #8ac0ff;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; }
p { margin: .4rem 0; max-width: 48rem; }
p, li, td, th, dd, summary { overflow-wrap: anywhere; }
a { color: var(--link); }
.soft, caption { color: var(--soft); }
code, pre { font: .88em/1.45 ui-monospace, monospace; }
pre { margin: .4rem 0; padding: .6rem .8rem; overflow-x: auto; background: var(--panel); border-radius: 4px; }
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
.panel { background: var(--panel); border-left: 4px solid var(--skipped); border-radius: 4px; padding: .6rem 1rem; }
[data-state=pass] .panel { border-color: var(--pass); }
[data-state=fail] .panel { border-color: var(--fail); }
[data-state=unknown] .panel { border-color: var(--unknown); }
.panel h2 { margin-top: 0; }
.state { font-weight: 600; white-space: nowrap; }
p.state { white-space: normal; }
.state.pass { color: var(--pass); } .state.fail { color: var(--fail); }
.state.unknown { color: var(--unknown); } .state.skipped { color: var(--skipped); }
ul.row { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: .6rem 0; padding: 0; list-style: none; }
.inner { padding-left: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; padding: .2rem 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); }
td { min-width: 4rem; }
td[data-label=address] { overflow-wrap: break-word; }
thead th { overflow-wrap: normal; }
tbody th { font-weight: 600; min-width: 6rem; }
td p, td ul { margin: 0; padding: 0; list-style: none; }
td li + li { margin-top: .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .3rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
details { margin: .3rem 0; } summary { cursor: pointer; }
.figure { min-height: 20rem; margin: .5rem 0; border-radius: 4px; }
[data-figures=missing] .figure { min-height: 0; }
[data-figures=missing] .figure::before { content: "Not drawn: plotly was missing where this page was made."; }
#pairs { max-width: 58rem; cursor: crosshair; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
#pairs-cell { min-height: 3rem; padding: .4rem .8rem; background: var(--panel); border-radius: 4px; }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 .3em; font: .85em ui-monospace, monospace; }
.filter { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0; }
input, select { font: inherit; color: inherit; background: var(--back); border: 1px solid var(--soft);
  border-radius: 4px; padding: .25rem .5rem; max-width: 100%; }
[hidden] { display: none; }
@media (max-width: 40rem) {
  main { padding: .5rem .75rem 3rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
  table thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  tbody tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0; }
  tbody, tbody th, tbody td, caption { display: block; border: 0; padding: .1rem 0; }
  tbody td:empty { display: none; }
  td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); }
}
@media print { nav, .filter { display: none; } details { break-inside: avoid; } }
"""
