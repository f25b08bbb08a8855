#!/usr/bin/env python3
"""Check the English of tracked files, as far as a program can; `english.py --commit FILE` checks a commit message.

Sentences that begin with a relative word, words that the glossary replaces, and links whose text is a file's name are
errors.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

# A sentence that begins so has no subject, unless it is a question.
RELATIVE = re.compile(
    r"(Of|Whom?|Whoever|Whose|Else|Whatever|So (?:much|many)|By which|Said|Told|What (?:is|was|no|an?|the|are|were))"
    r"\s+[a-z]"
)
BANNED = {
    r"whoever|whomever": "a noun, or 'anyone who'",
    r"in vain": "'never', or 'without an answer'",
    r"verdicts?": "result",
    r"stand-ins?": "fake (tests/fakes), or simulated",
    r"stood still": "suspended",
    r"held up": "slow",
    r"proven": "verified",
    r"live and die": "stop on every node",
}
BANNED_WORD = re.compile("|".join(rf"\b(?P<w{number}>{word})\b" for number, word in enumerate(BANNED)), re.IGNORECASE)
FILE_NAME = re.compile(r"\[[^][]*\.md\]\(")
SUBJECT_LENGTH = 72
# Other texts than ours: captured outputs, licenses, lock files, pictures.
FOREIGN = (".ci/english.py", "tests/fixtures/", "LICENSE", "requirements/", "docs/grafana", "docs/images/")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment, docstring, description, task name and paragraph of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _of_python(text)
    elif path.suffix in (".yml", ".j2", ".toml", ".sh", ".cfg") or path.name == "Makefile":
        for number, line in enumerate(text.splitlines(), 1):
            for found in re.finditer(r"(?:^|\s)##? (.+)|\b(?:name|description|short_description|fail_msg): (.+)", line):
                yield number, found[1] or found[2]
    elif path.suffix == ".md":
        code = False
        for number, line in enumerate(text.splitlines(), 1):
            code ^= line.lstrip().startswith("```")
            if not code:
                yield number, re.sub(r"^[\s#>*|\d.-]+", "", line)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            # The second line of a comment goes on with the first one.
            if token.start[0] != before + 1:
                yield token.start[0], token.string.lstrip("# ")
            before = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                yield getattr(node, "lineno", 1), " ".join(paragraph.split())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def problems(text: str) -> Iterator[str]:
    """Yield what is wrong with a text."""
    begins = [text, *re.split(r"(?<=[.:;]) ", text)[1:]] if "?" not in text else []
    for sentence in begins:
        if found := RELATIVE.match(sentence):
            yield f"a sentence begins with {found[0]!r}: name its subject"
    for found in FILE_NAME.finditer(text):
        yield f"{found[0]!r}: write the title of the page, or what it has"
    for found in BANNED_WORD.finditer(text):
        yield f"{found[0]!r}: write {list(BANNED.values())[int((found.lastgroup or 'w0')[1:])]}"


def check_files() -> int:
    """Print the problems of all tracked files; returns how many there are."""
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = set()
    for path in map(Path, names):
        if path.is_file() and not path.is_symlink() and not str(path).startswith(FOREIGN):
            found |= {(str(path), line, problem) for line, text in sentences(path) for problem in problems(text)}
    for name, line, problem in sorted(found):
        print(f"{name}:{line}: {problem}")
    return len(found)


def check_commit(path: str) -> int:
    """Print what is wrong with the subject of a commit message; returns 1 where something is."""
    subject = Path(path).read_text(encoding="utf-8").partition("\n")[0]
    if len(subject) <= SUBJECT_LENGTH and not subject.endswith("."):
        return 0
    print(
        f"found a subject of {len(subject)} characters, expected at most {SUBJECT_LENGTH} and no full stop: shorten it"
    )
    return 1


if __name__ == "__main__":
    sys.exit(bool(check_commit(sys.argv[2]) if sys.argv[1:2] == ["--commit"] else check_files()))
