// How the site's search orders pages. Sphinx gives a page the score of its best word, so all pages with one word of the
// query in some heading are equal. Here each further word in the headings counts, and pages that list everything (changelog,
// generated reference) or are no pages for users come after those that explain.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => {
    const stemmer = new Stemmer();
    const { docnames, titles, titleterms } = Search._index;
    const number = docnames.indexOf(page);
    const query = new URLSearchParams(window.location.search).get("q").toLowerCase();
    const title = splitQuery(titles[number].toLowerCase()).map((word) => stemmer.stemWord(word));
    for (const word of splitQuery(query).map((each) => stemmer.stemWord(each))) {
      const pages = Object.hasOwn(titleterms, word) ? [titleterms[word]].flat() : [];
      score += (pages.includes(number) ? 10 : 0) + (title.includes(word) ? 5 : 0);
    }
    return /^(CHANGELOG|docs\/(reference|adr)\/|benchmarks|tests|training)/.test(page) ? score - 30 : score;
  },
};

// Words of English and Chinese. Each two neighbors are a word of Chinese, as in the index (docs/conf.py).
var splitQuery = (query) => [
  ...[...query.matchAll(/(?=([\u3400-\u9fff]{2}))/g)].map((pair) => pair[1]),
  ...(query.match(/(?:(?![\u3400-\u9fff])[\p{Letter}\p{Number}_])+/gu) ?? []),
];
