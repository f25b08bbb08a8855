# SPDX-License-Identifier: Apache-2.0
"""Put a cluster's names into the text of a hosts file.

The first line that holds a name wins, and case does not matter (hosts(5)). Therefore a block of our own, as
ansible.builtin.blockinfile writes it, is not enough: lines of the site may come before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from .hosts import Entry, can_name_a_node, parse_address


def rewrite_hosts(
    text: str, entries: Sequence[Entry], block: str, left_out: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Put the cluster's names into the text of a hosts file.

    `left_out` are nodes of the cluster that this run does not include (--limit): their lines in the block stay.

    Returns the new text and the conflicts, which are lines of the site that give one of these names another address.
    Unrelated lines stay as they are, to the byte. Loopback lines lose the names, as Debian's `127.0.1.1 NAME` is an
    address that no other node can reach. Raises ValueError for a block without its end, and for illegal names.
    """
    odd = [name for entry in entries for name in entry.names if not can_name_a_node(name)]
    odd += [] if block.isprintable() else [block]
    odd += [entry.address for entry in entries if parse_address(entry.address) is None]
    if odd:
        raise ValueError(f"{', '.join(map(repr, odd))} is not allowed there; correct the names in the inventory")
    begin, end = f"# BEGIN trainyard {block}", f"# END trainyard {block}"
    addresses = {name.lower(): entry.address for entry in entries for name in entry.names}
    site: list[str] = []
    conflicts: list[str] = []
    old: list[str] = []
    place: int | None = None
    inside = False
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        mark = line.strip()
        if mark == begin and not inside:
            inside = True
            place = len(site) if place is None else place
        elif mark == end and inside:
            inside = False
        elif inside:
            old.append(line)
        else:
            site += _site_line(line, number, addresses, conflicts)
    if inside:
        raise ValueError(f"the line '{begin}' has no '{end}' after it; restore it, or remove the whole block")
    managed = [begin, *_block_lines(entries, old if left_out else (), left_out), end]
    place = len(site) if place is None else place
    return "\n".join([*site[:place], *managed, *site[place:]]) + "\n", conflicts


def _block_lines(entries: Sequence[Entry], old: Iterable[str], left_out: Collection[str]) -> list[str]:
    """Return the lines of the block, old nodes in their old order."""
    new = {entry.names[0]: f"{entry.address} {' '.join(entry.names)}" for entry in entries if entry.names}
    known = {name for entry in entries for name in (entry.address, *entry.names)}
    lines = []
    for line in old:
        fields = line.split()
        if fields[1:] and fields[1] in new:
            lines.append(new.pop(fields[1]))
        elif set(fields[1:]) & set(left_out) and not set(fields) & known:
            lines.append(line)
    return [*lines, *new.values()]


def _site_line(line: str, number: int, addresses: Mapping[str, str], conflicts: list[str]) -> Iterable[str]:
    """Return what replaces one line of the site."""
    content, hash_sign, comment = line.partition("#")
    fields = content.split()
    ours = [name for name in fields[1:] if name.lower() in addresses]
    if not ours:
        return [line]
    address = parse_address(fields[0])
    if address is not None and address.is_loopback:
        rest = [name for name in fields[1:] if name.lower() not in addresses]
        if not rest:
            return [f"#{comment}"] if comment.strip() else []
        return [" ".join([fields[0], *rest]) + (f" #{comment}" if hash_sign else "")]
    for name in ours:
        expected = addresses[name.lower()]
        if address is None or address != parse_address(expected):
            conflicts.append(f"line {number} gives {name} the address {fields[0]}; this cluster gives it {expected}")
    return [line]
