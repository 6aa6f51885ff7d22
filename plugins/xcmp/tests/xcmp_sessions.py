# SPDX-License-Identifier: Apache-2.0
"""Scenarios of session boundaries: closing, offboarding, and both together."""

from __future__ import annotations

from collections.abc import Iterator

from xcmp_trace import ALL, BALANCE, R1, R2, A, B, C, D, Trace, balance, column, condemned, metadata, request, row_root
from xcmp_world import le32

CHANGE = "xcmp_channels.txt On Session Change"
COUNTER = ("X-I02", "are entries decremented at the boundary that adds them", "yes: counter N leaves N-1 sessions")
EMPTY = (
    "X-I03",
    "when is a channel empty for the relay chain",
    "nothing was sent, or the recipient's watermark covers the newest message",
)
ROWLESS = ("X-I14", "root of a row without columns", "no entry in cst_roots")
OFFBOARDING = (
    "X-I10",
    "offboarding",
    "all columns from and to the para go at once, deposits return, no message; later columns move down",
)


def unread_message(sender: int, recipient: int, last_updated: int, root: str) -> str:
    """Return the message about a channel that was closed with unread messages."""
    return (le32(sender) + le32(recipient) + le32(last_updated)).hex() + root


def closings() -> Iterator[Trace]:
    """Yield the scenarios of the condemned set."""
    t = Trace(
        "closing/never-used",
        "an empty channel goes at the boundary that condemns it, and nobody is told",
        source=f"{CHANGE} 3",
        interpretation=EMPTY,
    ).open((A, B), (A, C))
    t.at(3).close(A, A, 0).at(4).session().state(condemned=[], close_requests=[], cmt={A: [metadata(C)]}, dmq_set=[])
    yield t.state(cst_roots={A: row_root((C, 0, None))}, balances={A: balance(900), B: balance(1000), C: balance(950)})

    t = Trace(
        "closing/last-column",
        "a row goes with its last column, and its root with it",
        source=f"{CHANGE} 3",
        interpretation=ROWLESS,
    ).open((A, B))
    yield t.at(3).close(B, A, 0).at(4).session().state(cst_set=[], cmt_set=[], cst_roots_set=[])

    t = Trace(
        "closing/unread-message-goes-to-the-recipient",
        "counter 3: condemned for two sessions, then the recipient is told the column",
        source=f"{CHANGE} 3",
        interpretation=(
            "X-I16",
            "to whom goes the DM with the contents of a column that is closed with unread messages",
            "the recipient",
        ),
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(B, A, 0)
    t.at(4).session().state(condemned=[condemned(A, B, 0, 2)], dmq_set=[])
    t.at(5).session().state(condemned=[condemned(A, B, 0, 1)], cst={A: [column(3, R1)]})
    t.at(7).session().state(condemned=[], cst_set=[], cst_roots_set=[], balances={A: balance(1000), B: balance(1000)})
    yield t.state(dmq={B: [{"sent_at": 7, "msg": unread_message(A, B, 3, R1)}]}, dmq_set=[str(B)])

    for counter in (0, 1):
        t = Trace(
            f"closing/counter-of-{counter}",
            "with a counter of 1 or 0 a channel goes at the boundary that condemns it",
            source=f"{CHANGE} 2, 3",
            config={"xcmp_condemned_sessions": counter},
            interpretation=COUNTER,
        ).open((A, B))
        t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0)
        t.at(4).session().state(condemned=[], cst_set=[])
        yield t.state(dmq={B: [{"sent_at": 4, "msg": unread_message(A, B, 3, R1)}]})

    t = Trace(
        "closing/read-while-condemned",
        "it goes as soon as it is read, and nobody is told",
        source=f"{CHANGE} 3",
        interpretation=EMPTY,
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0).at(4).session().state(condemned=[condemned(A, B, 0, 2)])
    t.at(5).candidate(B, (3, A), "").at(6).session()
    yield t.state(condemned=[], cst_set=[], dmq_set=[], balances={A: balance(1000), B: balance(1000)})

    t = Trace(
        "closing/almost-read",
        "a watermark just below the message covers nothing",
        source=f"{CHANGE} 3",
        interpretation=EMPTY,
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0)
    t.at(4).candidate(B, (3, A - 1), "").session()
    yield t.state(condemned=[condemned(A, B, 0, 2)])

    t = Trace(
        "closing/columns-move",
        "condemned entries follow their columns, and bits mean what they stand on",
        source=f"{CHANGE} 3",
    ).open((A, B), (A, C), (A, D))
    t.at(3).candidate(A, None, "001", R1).at(3).close(A, A, 2).close(A, A, 0)
    t.at(4).session().state(condemned=[condemned(A, D, 1, 2)], cmt={A: [metadata(C), metadata(D)]})
    t.state(cst_roots={A: row_root((C, 0, None), (D, 3, R1))})
    t.at(5).candidate(A, None, "11", R2, "Bitfield/ChannelCondemned", index=1, recipient=D).candidate(A, None, "1", R2)
    t.state(cst={A: [column(5, R2), column(3, R1)]})
    yield t.candidate(A, None, "001", R2, "Bitfield/TooLong", length=3, row_length=2)

    t = Trace(
        "closing/opened-before-removed",
        "a boundary appends new columns before it removes old ones",
        source="xcmp_rules 1.2",
    ).open((A, B), (A, C))
    t.at(3).close(A, A, 0).init(A, D).accept(D, 0).at(4).session()
    yield t.state(cmt={A: [metadata(C), metadata(D)]}, cst_roots={A: row_root((C, 0, None), (D, 0, None))})

    t = Trace(
        "closing/reopened",
        "a channel that is opened again starts anew, behind the others",
        source="xcmp_rules 1.2",
        config={"xcmp_condemned_sessions": 1},
    ).open((A, B), (A, C))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0).at(4).session().state(cst={A: [column()]})
    t.at(5).init(A, B).accept(B, 0).at(6).session()
    yield t.state(
        cst={A: [column(), column()]}, cmt={A: [metadata(C), metadata(B)]}, balances={A: balance(800), B: balance(950)}
    )

    t = Trace(
        "closing/two-channels-of-a-row", "several channels of a row go at one boundary", source=f"{CHANGE} 3"
    ).open((A, B), (A, C), (A, D))
    t.at(3).candidate(A, None, "010", R1).at(3).close(A, A, 0).close(A, A, 1).close(D, A, 2)
    t.at(4).session().state(condemned=[condemned(A, C, 0, 2)], cst_roots={A: row_root((C, 3, R1))})
    yield t.at(5).session().at(6).session().state(condemned=[], cst_set=[], dmq_set=[str(C)])


def offboarding() -> Iterator[Trace]:
    """Yield the scenarios of paras that leave."""
    t = Trace(
        "offboarding/sender",
        "row, metadata, root and watermark go; both deposits return; nobody is told",
        source=f"{CHANGE} 1",
        interpretation=OFFBOARDING,
    ).open((A, B), (A, C), (B, C))
    t.at(3).candidate(A, None, "1", R1).at(4).session(outgoing=(A,))
    t.state(paras=[B, C, D], cst_set=[str(B)], cst_roots_set=[str(B)], watermarks={A: None}, dmq_set=[])
    yield t.state(balances={A: balance(1000), B: balance(900), C: balance(950)})

    t = Trace(
        "offboarding/recipient",
        "columns that lead to it go from every row, later ones move down",
        source=f"{CHANGE} 1",
        interpretation=OFFBOARDING,
    ).open((A, B), (A, C), (D, B))
    t.at(3).candidate(A, None, "11", R1).candidate(D, None, "1", R2).at(4).session(outgoing=(B,))
    t.state(cst={A: [column(3, R1)]}, cmt={A: [metadata(C)]}, cst_set=[str(A)], cst_roots={A: row_root((C, 3, R1))})
    yield t.state(balances={A: balance(900), B: balance(1000), D: balance(1000)}, dmq_set=[])

    t = Trace(
        "offboarding/bits-mean-other-channels",
        "after a recipient left the same bit is another channel",
        source=f"{CHANGE} 1",
        interpretation=OFFBOARDING,
    ).open((A, B), (A, C))
    t.at(3).session(outgoing=(B,))
    yield t.at(4).candidate(A, None, "1", R1).state(cst={A: [column(4, R1)]}, cst_roots={A: row_root((C, 4, R1))})

    t = Trace(
        "offboarding/confirmed-request",
        "no column for a party that is gone; both deposits return",
        source=f"{CHANGE} 2",
        interpretation=(
            "X-I11",
            "confirmed request whose sender or recipient is offboarded at the same boundary",
            "no column, both reserved deposits returned",
        ),
    )
    t.at(1).init(A, B).init(C, A).init(C, D).accept(B, 0).accept(A, 1).accept(D, 2)
    t.at(2).session(outgoing=(A,)).state(open_requests=[], cst_set=[str(C)], cmt={C: [metadata(D)]})
    yield t.state(balances={A: balance(1000), B: balance(1000), C: balance(900), D: balance(950)})

    for who, gone in (("sender", A), ("recipient", B)):
        t = Trace(
            f"offboarding/confirmed-request-of-a-{who}-that-comes-back-at-once",
            "a para that goes at the boundary is gone for its requests, even if the same change onboards it again",
            source=f"{CHANGE} 2",
            interpretation=(
                "X-I11",
                "confirmed request whose sender or recipient is offboarded at the same boundary",
                "no column, both reserved deposits returned",
            ),
        )
        t.at(1).init(A, B).accept(B, 0).at(2).session(outgoing=(gone,), onboarding={gone: 0})
        yield t.state(open_requests=[], cst_set=[], balances={A: balance(1000), B: balance(1000)})

    t = Trace(
        "offboarding/unconfirmed-request-expires",
        "what nobody confirmed ages on and is refunded in time",
        source=f"{CHANGE} 2",
    )
    t.at(1).init(A, B).init(C, A).at(2).session(outgoing=(A,))
    t.state(open_requests=[request(A, B, age=1), request(C, A, age=1)], balances={A: balance(900), C: balance(900)})
    yield t.at(3).session().state(open_requests=[], balances={A: balance(1000), C: balance(1000)})

    t = Trace(
        "offboarding/accepted-after-it-left",
        "a request of a para that left may be accepted, and comes to nothing",
        source=f"{CHANGE} 2",
    )
    t.at(1).init(A, B).at(2).session(outgoing=(A,)).at(3).accept(B, 0).state(balances={B: balance(950)})
    yield t.at(4).session().state(open_requests=[], cst_set=[], balances={A: balance(1000), B: balance(1000)})

    t = Trace(
        "offboarding/condemned-channel",
        "a condemned entry goes with its channel, others follow the shift",
        source=f"{CHANGE} 1",
    ).open((A, B), (A, C))
    t.at(3).candidate(A, None, "11", R1).at(3).close(A, A, 0).close(A, A, 1).at(4).session()
    t.state(condemned=[condemned(A, B, 0, 2), condemned(A, C, 1, 2)])
    t.at(5).session(outgoing=(B,)).state(condemned=[condemned(A, C, 0, 1)])
    yield (
        t.at(6).session().state(condemned=[], cst_set=[], dmq={C: [{"sent_at": 6, "msg": unread_message(A, C, 3, R1)}]})
    )

    t = Trace(
        "offboarding/close-request", "a request to close a channel that vanished is skipped", source=f"{CHANGE} 3"
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0)
    yield t.at(4).session(outgoing=(B,)).state(close_requests=[], condemned=[], cst_set=[], balances={A: balance(1000)})

    t = Trace(
        "offboarding/comes-back", "a para that leaves and comes back at one boundary starts anew", source=f"{CHANGE} 1"
    ).open((A, B))
    t.at(3).downward(A, "aa").candidate(A, (2, 9), "1", R1)
    t.at(4).session(outgoing=(A,), onboarding={A: 5})
    t.state(paras=[A, B, C, D], cst_set=[], watermarks={A: None}, balances={A: {"free": 1005, "reserved": 0}})
    t.state(dmq_set=[], dmq_heads_set=[])
    yield t.at(5).init(A, B).candidate(A, (0, 0), "").state(watermarks={A: [0, 0]})

    t = Trace(
        "offboarding/newcomer",
        "a para that is onboarded can be reached from the next block on",
        source=f"{CHANGE} 1",
        paras={A: BALANCE},
    )
    t.at(3).init(A, B, "Open/InvalidRecipient", recipient=B).session(onboarding={B: 60})
    t.at(4).init(A, B).accept(B, 0).at(5).session()
    yield t.state(cmt={A: [metadata(B)]}, balances={B: {"free": 10, "reserved": 50}}, paras=[A, B])


def roots() -> Iterator[Trace]:
    """Yield the scenarios of the roots of rows."""
    reading = (
        "X-I13",
        "CST root: hash, shape and leaf are not given",
        "F-v1: BLAKE2b-256, RFC 9162 shape, tagged leaves with recipient, sized root",
    )
    t = Trace(
        "roots/one-two-three-columns",
        "roots of rows of one, two and three columns",
        source="xcmp_rules 1.1",
        interpretation=reading,
    ).open((A, B))
    t.state(cst_roots={A: row_root((B, 0, None))})
    t.at(3).init(A, C).accept(C, 0).at(4).session().state(cst_roots={A: row_root((B, 0, None), (C, 0, None))})
    t.at(5).init(A, D).accept(D, 0).at(6).session().state(
        cst_roots={A: row_root((B, 0, None), (C, 0, None), (D, 0, None))}
    )
    t.at(7).candidate(A, None, "011", R1)
    yield t.state(cst_roots={A: row_root((B, 0, None), (C, 7, R1), (D, 7, R1))}, watermarks={A: [6, ALL]})
