"""Which unauthenticated connection of a head has to go."""

import random
from collections import Counter

import pytest
from ansible.module_utils.trainyard.job.run.wire.guests import MORE, PLACES, Guests, own_addresses, source
from ansible.module_utils.trainyard_node.job.run.monitor.connections import PAUSE_S
from ansible.module_utils.trainyard_node.job.run.monitor.node_loop import RETRY_S
from hypothesis import given
from hypothesis import strategies as st

NODE = "the node"
OWN = ["10.0.0.1", "10.0.0.2", "fd00::3"]
STRANGERS = ["10.0.0.99", "192.0.2.1", "2001:db8::1", "2001:db8:0:1::1"]


@pytest.mark.parametrize(("address", "one"), [
    ("10.0.0.1", "10.0.0.1"),
    ("10.0.0.9", "10.0.0.9"),
    ("::ffff:10.0.0.1", "10.0.0.1"),
    # An address of the job is one, though its network may have others.
    ("fd00::3", "fd00::3"),
    ("fd00::4", "fd00::/64"),
    ("fe80::7%eth0", "fe80::/64"),
    ("fe80::5%eth1", "fe80::5"),
    ("2001:db8:1:2:aaaa:bbbb:cccc:dddd", "2001:db8:1:2::/64"),
])  # fmt: skip
def test_what_counts_as_one_address(address, one):
    own = own_addresses([*OWN, "fe80::5%eth0", "a-name", ""])
    assert own == {*OWN, "fe80::5"}
    assert source(address, own) == one


def test_an_address_of_the_job_has_its_places_and_its_oldest_goes():
    guests = Guests(OWN)
    assert [guests.admit(number, OWN[0], 2) for number in range(PLACES + 3)] == [None] * PLACES + [0, 1, 2]
    assert guests.admit("other", OWN[1], 2) is None
    guests.leave(5)
    guests.leave(5)
    assert guests.admit("new", OWN[0], 2) is None


def test_strangers_share_places_and_the_one_with_the_most_gives_way():
    """Nodes behind a router come from one address, all of them at the same time."""
    guests, missing = Guests(OWN), MORE
    nodes = [f"node {number}" for number in range(missing)]
    assert [guests.admit(node, "192.0.2.1", missing) for node in nodes] == [None] * missing
    others = [guests.admit(number, "192.0.2.2", missing) for number in range(missing)]
    assert others == [None] * missing
    # Now both have as many, so each gives way to its own.
    assert guests.admit("next", "192.0.2.2", missing) == 0
    assert guests.admit("third", "192.0.2.3", missing) == nodes[0]
    assert guests.admit("own", OWN[0], missing) is None


def test_nobody_gives_way_where_each_stranger_has_one_place():
    guests = Guests(OWN)
    for number in range(MORE):
        assert guests.admit(number, f"192.0.2.{number}", 0) is None
    assert guests.admit("next", "192.0.2.200", 0) == "next"
    assert guests.admit("again", "192.0.2.7", 0) == 7
    assert guests.admit("own", OWN[0], 0) is None


ARRIVALS = st.lists(
    st.tuples(st.sampled_from([*OWN, *STRANGERS, *(f"10.9.0.{at}" for at in range(1, 90))]), st.integers(0, 3),
              st.sampled_from([0, 1, 2, 40])),
    max_size=60,
)  # fmt: skip


@given(ARRIVALS, st.integers(1, 30))
def test_who_goes_whatever_arrives(arrivals, repeated):
    """Bounds hold, an address never loses a place to a larger one, and an address of the job always gets one."""
    own = own_addresses(OWN)
    guests, there = Guests(OWN), {}
    for number, (address, leaves, missing) in enumerate(each for each in arrivals for _ in range(repeated)):
        where = source(address, own)
        before = Counter(there.values())
        goes = guests.admit(number, address, missing)
        there[number] = where
        if goes is not None:
            lost = there[goes]
            assert goes == next(guest for guest, its in there.items() if its == lost) or goes == number
            assert (lost in own) == (where in own)
            del there[goes]
        after = Counter(there.values())
        if goes is not None and lost != where:
            assert after[lost] >= after[where]
        if not before[where]:
            # A newcomer from another address is refused only where each address has a single place.
            assert goes != number or (where not in own and max(before.values()) == 1)
        of_job = sum(after[each] for each in own)
        assert of_job <= len(own) + MORE and all(after[each] <= PLACES for each in own)
        assert len(there) - of_job <= MORE + 40
        if not leaves:
            gone = next(iter(there))
            guests.leave(gone)
            del there[gone]


def until_joined(rate, attackers, node, addresses, seed=0):
    """Return after how long a node joins, by a clock of its own, while attackers open so many connections a second.

    The head accepts every PAUSE_S. A handshake takes less, so a connection that has a place then joins.
    """
    choose = random.Random(seed)  # noqa: S311 - nothing is secret here
    guests, now, calls = Guests(addresses), 0.0, choose.random() * RETRY_S
    while now < 120:
        now += PAUSE_S
        arrived = [(now - PAUSE_S * choose.random(), choose.choice(attackers)) for _ in range(round(rate * PAUSE_S))]
        if calls <= now:
            arrived.append((calls, NODE))
        left = [guests.admit((at, each), node if each == NODE else each, missing=1) for at, each in sorted(arrived)]
        if calls <= now:
            if (calls, NODE) not in left:
                return now
            calls = now + RETRY_S * (1 + choose.random())
    raise AssertionError("not joined")


@pytest.mark.parametrize("rate", [100, 4000, 20000])
@pytest.mark.parametrize(("attackers", "node"), [
    (["10.0.0.99"], "10.0.0.2"),
    # By a router, and though strangers have many addresses.
    (["10.0.0.99"], "192.0.2.1"),
    ([f"10.0.1.{number}" for number in range(60)], "192.0.2.1"),
    ([f"10.0.1.{number}" for number in range(200)], "10.0.0.2"),
    # From all other addresses of the job.
    (["10.0.0.1", "10.0.0.3"], "10.0.0.2"),
])  # fmt: skip
def test_a_node_joins_at_once_whatever_other_addresses_do(attackers, node, rate):
    first = until_joined(0, [], node, ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    assert until_joined(rate, attackers, node, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]) == first


@pytest.mark.parametrize("seed", range(5))
def test_a_node_joins_after_some_tries_though_its_own_address_attacks(seed):
    assert until_joined(4000, ["10.0.0.2"], "10.0.0.2", ["10.0.0.1", "10.0.0.2"], seed) < 20
