# SPDX-License-Identifier: Apache-2.0
"""A program that tells which modules a Python lacks; it loads none of them. Any Python from 3.4 on runs it."""

from __future__ import annotations

# Defines lacks(name), for `a.b` (import a.b) and `a.b:c` (from a.b import c): the part of the name that is surely
# missing, with dots, or "". A package may make modules itself, so its own code is read where a file is missing.
LACKS = r"""
import importlib.util, re, sys
def lacks(name):
    try:
        return _lacks(*name.partition(":")[::2])
    except BaseException:
        return ""
def _lacks(name, attribute):
    first, *parts = name.split(".")
    package = importlib.util.find_spec(first)
    if package is None:
        return first
    done = first
    for part in parts:
        found = _below(package, done, part)
        if found is None:
            return "" if _makes(package, part, _MODULES) else done + "." + part
        package, done = found, done + "." + part
    if not attribute or _below(package, done, attribute) is not None or _makes(package, attribute, _NAMES):
        return ""
    return done + "." + attribute
_MODULES = r"__path__|meta_path|extend_path|sys\.modules"
_NAMES = _MODULES + r"|import \*|__getattr__|globals\(|locals\(|vars\(|setattr|exec\("
def _below(package, name, part):
    places = package.submodule_search_locations
    finders = [finder for finder in sys.meta_path if places is not None and hasattr(finder, "find_spec")]
    specs = (finder.find_spec(name + "." + part, places) for finder in finders)
    return next((spec for spec in specs if spec is not None), None)
def _makes(package, part, signs):
    if package.submodule_search_locations is None:
        return True
    named = package.loader is not None and package.origin not in (None, "namespace")
    text = package.loader.get_source(package.name) if named else ""
    return text is None or re.search(signs + r"|\b" + re.escape(part) + r"\b", text) is not None
"""
