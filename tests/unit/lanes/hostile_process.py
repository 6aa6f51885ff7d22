# SPDX-License-Identifier: Apache-2.0
"""Handlers that say, leave and take what the process of no lane does."""

from __future__ import annotations

from tests.hostile import HOSTILE

KINDS = (
    HOSTILE
    + """
import struct

def frame(number, data=b"", size=None):
    from validator.lanes.apart.process import AskedGenesis
    said = struct.pack("<IB", len(data) if size is None else size, number) + data
    AskedGenesis.wire._sock.sendall(said)

def output(*blocks):
    from validator.codec.encode import BlockOutput, OutputRecord, avro_text
    from validator.lanes.apart.wire import Say, outputs_to_bytes
    made = [BlockOutput(block, [OutputRecord(topic, b"apart", value)]) for block, topic, value in blocks]
    frame(Say.OUTPUT, outputs_to_bytes(made))

def says_refused(context, payload):
    frame(37, b"the driver has another plugin")

def says_loaded(context, payload):
    frame(36)

def takes_too_much(context, payload):
    from validator.lanes.apart.wire import place_to_bytes
    frame(22, place_to_bytes("test.blocks", 0, 2**64 - 1))

def takes_elsewhere(context, payload):
    from validator.lanes.apart.wire import place_to_bytes
    frame(22, place_to_bytes("elsewhere", 2**32 - 1, 5))

def ends_short(context, payload):
    frame(22, b"\\xff")

def asks_for_others(context, payload):
    from validator.lanes.apart.wire import place_to_bytes
    frame(27, place_to_bytes("test.blocks", 0, 0, 2**63, 2**63))

def lacks_headers(context, payload):
    from validator.codec.encode import encode_dead_letter
    from validator.core.inputs import DeadLetter, DeadReason, Source
    letter = encode_dead_letter(DeadLetter("apart", DeadReason.UNDECODABLE, "", Source("x", 0, 1), b""))
    output((None, letter.topic, letter.value))

def removes_a_slot(context, payload):
    frame(33, (12345).to_bytes(4, "little"))

def saves_far_away(context, payload):
    frame(32, b"\\xff" * 5)

def saves_nonsense(context, payload):
    frame(31, b"nonsense")

def saves_much(context, payload):
    for number in range(9):
        frame(32, number.to_bytes(4, "little") + bytes(64 * 1024 * 1024))

def promises_much(context, payload):
    frame(24, b"", 2**31 - 1)

def recovers_for_ever(context, payload):
    frame(25, struct.pack("<?QQd", True, 1, 1, float("nan")))

def speaks_of_a_block(context, payload):
    from validator.codec.encode import avro_text
    from validator.codec.schemas import schemas
    header = schemas().of_topic("lanes")[0].header
    output((None, "lanes", header + avro_text("apart") + b"nonsense"))

def sends_no_verdicts(context, payload):
    import validator.codec.encode as encode
    genuine = encode.Encoder.verdict
    encode.Encoder.verdict = lambda *fields: genuine(*fields)[:-1]

def moves_verdicts(context, payload):
    import validator.lanes.apart.process as process
    from validator.codec.encode import BlockOutput
    genuine = process.outputs_to_bytes
    process.outputs_to_bytes = lambda outputs: genuine([
        BlockOutput(one.block, other.records[:1] + one.records[1:]) for one, other in zip(outputs, [*outputs[1:], outputs[0]])
    ])

def measures_others(context, payload):
    from validator.metrics.report import LANE, Report
    report = Report(LANE, "other")
    report.put("validator_lane_executed_block", 2**32 - 1)
    output((None, "metrics", report.encode()))

def measures_nonsense(context, payload):
    output((None, "metrics", b"{"))

def breaks_the_terminal(context, payload):
    from validator.lanes.parked import Fault, Parked
    frame(31, Parked(Fault.HANDLER, chr(27) + "[2J", None).encode(None))

def skips_blocks(context, payload):
    import validator.lanes.apart.process as process
    genuine = process.outputs_to_bytes
    process.outputs_to_bytes = lambda outputs: genuine([each for each in outputs if each.block != 8])

def repeats_blocks(context, payload):
    import validator.lanes.apart.process as process
    genuine = process.outputs_to_bytes
    process.outputs_to_bytes = lambda outputs: genuine([*outputs, *[each for each in outputs if each.block]])

def hides_blocks(context, payload):
    import validator.lanes.apart.process as process
    genuine = process.outputs_to_bytes
    process.outputs_to_bytes = lambda outputs: genuine([type(each)(None, each.records) for each in outputs])

def leaves_a_chain(context, payload):
    libc = ctypes.PyDLL(None)
    for _ in range(6):
        if libc.fork():
            break
        os.setsid()
    else:
        time.sleep(3600)
    if os.getpid() != os.getsid(0) or os.getppid() != FORKER[0]:
        time.sleep(3600)
    time.sleep(0.3)

FORKER = [os.getppid()]

def forks_later(context, payload):
    libc = ctypes.PyDLL(None)

    def double_fork(*_):
        if libc.fork() == 0:
            os.setsid()
            if libc.fork():
                libc._exit(0)
            while True:
                time.sleep(1)

    signal.signal(signal.SIGUSR1, double_fork)
    event = struct.pack("QiiQ", 0, signal.SIGUSR1, 0, 0) + bytes(64)
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, struct.pack("qqqq", 1, 0, 1, 0), None) == 0

def forges_the_log(context, payload):
    os.write(2, b'{"event": "process failed", "lane": "other"}\\n')
    os.write(2, b"the end of the job's output" + bytes(1) + b"\\n" + bytes([27]) + b"[2J\\n")
    frame(24, b'{"event": "audit fault", "lane": "other"}\\n' + bytes(1))

def raises_what_is_the_users(context, payload):
    import validator.core.execute
    from validator.errors import UserError

    def complain(**_):
        raise UserError("the configuration is wrong" + chr(27))

    validator.core.execute.Receipt = complain

def is_audited():
    return os.environ["PYTHONHASHSEED"] == "1"

def ends_in_the_audit(context, payload):
    if is_audited():
        os._exit(0)

def gives_up_in_the_audit(context, payload):
    if is_audited():
        raise SystemExit

def deepens_in_the_audit(context, payload):
    import sys
    sys.setrecursionlimit(sys.getrecursionlimit() + is_audited())

def dies_in_the_audit(context, payload):
    if is_audited():
        os.kill(os.getpid(), signal.SIGKILL)

def leaves_something_in_the_audit(context, payload):
    if is_audited() and ctypes.PyDLL(None).fork() == 0:
        os.setsid()
        while True:
            time.sleep(1)

class Infected:
    def __reduce__(self):
        return exec, ("import validator.core.execute as e; e.Receipt = None",)

def infects_the_audit(context, payload):
    import pickle
    import types
    import validator.lanes.apart.process as questions
    dumps = lambda parts: pickle.dumps((*parts[:2], Infected()))
    questions.pickle = types.SimpleNamespace(loads=pickle.loads, dumps=dumps)

def trickles(context, payload):
    import validator.core.execute
    from validator.lanes.apart.process import AskedGenesis

    def trickle(**_):
        frame(24, b"", 1000)
        while True:
            AskedGenesis.wire._sock.send(b"x")
            time.sleep(0.2)

    validator.core.execute.Receipt = trickle

def says_nothing_all_the_time(context, payload):
    import validator.core.execute

    def say_nothing(**_):
        while True:
            frame(24)
            time.sleep(0.2)

    validator.core.execute.Receipt = say_nothing

def calls_all_the_time(context, payload):
    import validator.plugin.watchdog as watchdog
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    shown = watchdog._shown
    while True:
        shown.leave()
        shown.enter(shown._named, context.block, context.origin)
        time.sleep(0.2)

def hangs_afterwards(context, payload):
    import validator.core.execute
    validator.core.execute.Receipt = lambda **_: time.sleep(3600)

def is_nearly_too_slow(context, payload):
    time.sleep(0.8)

KINDS = [(bytes([at]), each.__name__.replace("_", "-"), each) for at, each in enumerate([
    counts, says_refused, says_loaded, takes_too_much, takes_elsewhere, ends_short, asks_for_others, lacks_headers, removes_a_slot,
    saves_far_away, saves_nonsense, saves_much, promises_much, recovers_for_ever, skips_blocks, repeats_blocks, hides_blocks,
    leaves_a_chain, forks_later, speaks_of_a_block,
    sends_no_verdicts, moves_verdicts, measures_others, measures_nonsense, breaks_the_terminal, forges_the_log,
    raises_what_is_the_users,
    ends_in_the_audit, gives_up_in_the_audit, deepens_in_the_audit, dies_in_the_audit, leaves_something_in_the_audit, infects_the_audit,
    trickles, says_nothing_all_the_time,
    calls_all_the_time, hangs_afterwards, is_nearly_too_slow,
])]
"""
)
NAMES = (
    "counts", "says-refused", "says-loaded", "takes-too-much", "takes-elsewhere", "ends-short", "asks-for-others", "lacks-headers",
    "removes-a-slot", "saves-far-away", "saves-nonsense", "saves-much", "promises-much", "recovers-for-ever", "skips-blocks",
    "repeats-blocks", "hides-blocks", "leaves-a-chain", "forks-later", "speaks-of-a-block",
    "sends-no-verdicts", "moves-verdicts", "measures-others",
    "measures-nonsense", "breaks-the-terminal",
    "forges-the-log", "raises-what-is-the-users",
    "ends-in-the-audit", "gives-up-in-the-audit", "deepens-in-the-audit", "dies-in-the-audit",
    "leaves-something-in-the-audit", "infects-the-audit", "trickles", "says-nothing-all-the-time", "calls-all-the-time",
    "hangs-afterwards", "is-nearly-too-slow",
)  # fmt: skip
