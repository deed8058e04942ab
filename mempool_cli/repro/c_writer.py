"""Prints the description of a bug as one C file that needs nothing but cuda.h, the C library and POSIX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mempool_cli.repro.c_calls import C_TYPES, HELPERS, STRUCTURES, choosers, spelled
from mempool_cli.repro.language import (
    Bug,
    Call,
    Condition,
    Count,
    Equals,
    Fetch,
    Holds,
    InArm,
    InHistory,
    InThread,
    Is,
    Keep,
    Less,
    Not,
    Note,
    Put,
    Remark,
    Repeat,
    Rule,
    Step,
    Stop,
    Take,
    When,
    Wrote,
    derived,
)

_SCAFFOLD = Path(__file__).with_name("scaffold.c")
_WIDTH = 110
_MARK = re.compile(r"@([A-Z_]+)@")


def c_program(
    bug: Bug,
    *,
    seen_on: Sequence[str] = (),
    numbers: Mapping[str, int] | None = None,
    owner: int = -1,
    accessor: int = -1,
    limit: int = 60,
    file: str = "",
) -> str:
    """The C file. `seen_on`: lines that say on which machine and driver, with which verdict, it was seen.

    `numbers`: in place of those of the description. `owner`, `accessor`: unless others are chosen by -D; -1: any.
    `limit`: seconds of a trial. `file`: its name, for the line that builds it.
    """
    parts = _Parts(bug, seen_on, numbers or bug.numbers, file)
    parts.owner, parts.accessor, parts.limit = str(owner), str(accessor), str(limit)
    return _MARK.sub(lambda mark: getattr(parts, mark[1].lower()), _SCAFFOLD.read_text())


def enum_name(word: str) -> str:
    """The word as a C constant."""
    return word.upper().replace("-", "_")


class _Parts:
    """What stands at the marks of the scaffold, by their names in small letters."""

    def __init__(self, bug: Bug, seen_on: Sequence[str], numbers: Mapping[str, int], file: str) -> None:
        self.owner = self.accessor = self.limit = ""
        self._bug = bug
        self._steps = list(_every(bug.steps))
        calls = [step for step in self._steps if isinstance(step, Call)]
        trap = bug.kind == "trap"
        self.bad, self.good = ("PRESENT", "ABSENT") if trap else ("AFFECTED", "NOT_AFFECTED")
        self.bad_name, self.good_name = ("present", "absent") if trap else ("affected", "not-affected")
        self.bad_status = "1"
        self.exit = f" == {self.bad} ? 0 : verdict" if trap else ""
        self.crash = self.bad if bug.crash_counts else "INCONCLUSIVE"
        self.decides = " and ".join(bug.decides)
        self.deciding = " || ".join(f"arm == ARM_{enum_name(arm)}" for arm in bug.decides)
        self.header = _header(bug, seen_on, file)
        constants = derived(numbers).items()
        self.numbers = ", ".join(f"{enum_name(name)} = {number}" for name, number in constants)
        self.variants, self.variant_names = _enum("VARIANT", "VARIANTS", bug.needs)
        self.arms, self.arm_names = _enum("ARM", "ARMS", bug.arms)
        self.histories, self.history_names = _enum("HISTORY", "HISTORIES", bug.histories)
        self.counters = "\n".join(f"    int {each.name}; /* {each.words} */" for each in bug.counters)
        self.evidence = "\n".join(f'    printf("    %6d {each.words}\\n", e->{each.name});' for each in bug.counters)
        text = " ".join(" ".join(spelled(call)[0]) for call in calls)
        self.structures = "\n".join(code for name, code in STRUCTURES.items() if f"{name}(" in text)
        self.choosers = choosers(bug.needs)
        self.helpers = "\n".join(HELPERS[name] for name in self._needed(calls))
        self.rules = "\n".join(_rule(rule) for rule in bug.rules)
        self.variables = "\n".join(self._variables())
        threads = [step for step in self._steps if isinstance(step, InThread)]
        self.threads = "\n".join([HELPERS["in_thread"]] * bool(threads) + [_thread(step.body) for step in threads])
        self.thread_header = "#include <pthread.h>\n" if threads else ""
        self.steps = "\n".join(_indented(_steps(bug.steps), 1))
        sizes = [f"    found.{each.name} = {each.of}.count;" for each in bug.counters if each.of]
        self.sizes = "\n".join([*sizes, ""] if sizes else [])
        faulting = " || ".join(f"arm == ARM_{enum_name(arm)}" for arm in bug.faulting)
        self.skips = f"            if (!ALLOW_FAULTS && ({faulting}))\n                continue;\n" if faulting else ""

    def _needed(self, calls: Sequence[Call]) -> list[str]:
        methods = {call.method for call in calls}
        needed = ["stream_on"] if methods & {"use_device", "use_accessor"} else []
        needed += [
            method for method in ("retain_both", "write_by_kernel", "read_by_owner", "read_all") if method in methods
        ]
        needed += ["sets"] if any(isinstance(step, Put) for step in self._steps) else []
        return needed + (["note"] if any(isinstance(step, Note) for step in self._steps) else [])

    def _variables(self) -> Iterator[str]:
        seen: set[str] = set()
        for step in self._steps:
            for name, declared in _declared(step):
                if name not in seen:
                    seen.add(name)
                    yield f"static {declared}"


def _header(bug: Bug, seen_on: Sequence[str], file: str) -> str:
    name = bug.id.replace("-", "_")
    if re.fullmatch(r"[A-Za-z0-9_][\w+.-]*\.c", file):  # else a shell, or this comment, would read it otherwise
        name = file.removesuffix(".c")
    paragraphs = [
        f"{bug.id}: {bug.title}.",
        bug.about,
        *(f"Source    {source}" for source in bug.sources),
        *(f"Seen on   {line}" for line in seen_on),
        f"Build     cc {name}.c -lcuda -o {name}",
        f"          cc -I/usr/local/cuda/include {name}.c -L/usr/local/cuda/lib64/stubs -lcuda -o {name}",
        "Options   -DOWNER=0 -DACCESSOR=1; otherwise the first pair that can",
        *(
            f"          -DALLOW_FAULTS=1 runs the arm {arm} too: a fault writes an Xid, on which health monitors act"
            for arm in bug.faulting
        ),
        f"Run       ./{name}    all trials, then the verdict as the last line",
        f"Exit      {_exits(bug)}, 6 inconclusive, 3 no driver or no device",
        *(f"Arm       {arm}: {words}" for arm, words in bug.arms.items()),
        *(f"History   {history}: {words}" for history, words in bug.histories.items()),
        "Every trial is a process of its own: this program again, with --trial VARIANT ARM HISTORY.",
    ]
    lines = [line for text in paragraphs for line in _wrapped(text)]
    return "\n".join(f" * {line}".rstrip().replace("*/", "* /") for line in lines)


def _exits(bug: Bug) -> str:
    return "0 present or absent" if bug.kind == "trap" else "1 affected, 0 not affected"


def _wrapped(text: str) -> list[str]:
    if " cc " in text:
        return [text]
    later = " " * 10 if re.match(r"[A-Z][a-z]+ {2,}", text) else ""
    return textwrap.wrap(text, _WIDTH, subsequent_indent=later, break_long_words=False) or [""]


def _enum(prefix: str, last: str, names: Iterable[str]) -> tuple[str, str]:
    words = list(names)
    constants = ", ".join([*(f"{prefix}_{enum_name(word)}" for word in words), last])
    return constants, ", ".join(f'"{word}"' for word in words)


def _every(steps: Iterable[Step]) -> Iterator[Step]:
    """Each step, and the steps in it."""
    for step in steps:
        yield step
        match step:
            case Repeat(body=body) | InHistory(body=body) | InThread(body=body):
                yield from _every(body)
            case When(then=then, otherwise=otherwise):
                yield from _every([*then, *otherwise])
            case InArm(arms=arms):
                yield from _every(inner for body in arms.values() for inner in body)


def _declared(step: Step) -> list[tuple[str, str]]:
    match step:
        case Call(method=method, into=into, code=code):
            found = [(into, f"{C_TYPES[method]} {into} = 0;")] if into else []
            return found + ([(code, f"CUresult {code} = CUDA_SUCCESS;")] if code else [])
        case Keep(array=array):
            return [(array, f"CUmemoryPool {array}[BATCH];")]
        case Put(collection=collection) | Take(collection=collection):
            return [(collection, f"struct set {collection} = {{NULL, 0}};")]
    return []


# --- steps ---


def _steps(steps: Iterable[Step]) -> list[str]:
    return [line for step in steps for line in _step(step)]


def _step(step: Step) -> list[str]:
    match step:
        case Remark(text):
            return _comment(text)
        case Call():
            return _call(step)
        case Repeat(times, index, body):
            limit = times if isinstance(times, int) else enum_name(times)
            return _block(f"for (int {index} = 0; {index} < {limit}; {index}++)", _steps(body))
        case When(condition, then, otherwise):
            return _choice(condition, then, otherwise)
        case InArm(arms):
            return [
                line for arm, body in arms.items() for line in _block(f"if (arm == ARM_{enum_name(arm)})", _steps(body))
            ]
        case Stop():
            return ["conclude();"]
        case InThread(body):
            return [f"in_thread({thread_name(body)});"]
        case InHistory(history, body):
            return _block(f"if (history == HISTORY_{enum_name(history)})", _steps(body))
        case _:
            return [_record(step)]


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - 20)
    if len(lines) == 1:
        return [f"/* {lines[0]} */"]
    return [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:]), " */"]


def thread_name(body: Sequence[Step]) -> str:
    """The C function that does these steps."""
    first = next(step for step in body if isinstance(step, Call))
    return f"{first.method}_there"


def _thread(body: Sequence[Step]) -> str:
    lines = _indented(["(void)unused;", *_steps(body), "return NULL;"], 1)
    return "\n".join([f"static void *{thread_name(body)}(void *unused)", "{", *lines, "}", ""])


def _record(step: Step) -> str:
    match step:
        case Keep(array, index, name):
            return f"{array}[{index}] = {name};"
        case Fetch(name, array, index):
            return f"{name} = {array}[{index}];"
        case Put(collection, name):
            return f"put(&{collection}, {name});"
        case Take(collection, name):
            return f"take(&{collection}, {name});"
        case Count(counter):
            return f"found.{counter}++;"
        case Note(code):
            return f"note({code});"
    raise AssertionError(step)


def _call(call: Call) -> list[str]:
    declarations, text = spelled(call)
    line = f"{call.code} = CALL({text});" if call.code else f"CHECK({text});"
    if not declarations:
        return [line]
    return ["{", *_indented([*declarations, line], 1), "}"]


def _choice(condition: Condition, then: Sequence[Step], otherwise: Sequence[Step]) -> list[str]:
    if not then:
        return _block(f"if ({_negated(condition)})", _steps(otherwise))
    lines = _block(f"if ({_condition(condition)})", _steps(then))
    if not otherwise:
        return lines
    rest = _steps(otherwise)
    if len(otherwise) == 1 and isinstance(otherwise[0], When):
        return [*lines[:-1], f"}} else {rest[0]}", *rest[1:]]
    return [*lines[:-1], "} else {", *_indented(rest, 1), "}"]


def _negated(condition: Condition) -> str:
    match condition:
        case Is(name, value):
            return f"{name} != {_constant(value)}"
        case _:
            return f"!{_condition(condition)}"


def _condition(condition: Condition) -> str:
    match condition:
        case Is(name, value):
            return f"{name} == {_constant(value)}"
        case Equals(name, number):
            return f"{name} == {number if number < 10 else hex(number)}"
        case Wrote(name):
            return f"{name} == WORD"
        case Less(index, number):
            return f"{index} < {enum_name(number)}"
        case Holds(collection, name):
            return f"holds(&{collection}, {name})"
        case Not(inner):
            return f"!({_condition(inner)})"


def _constant(value: str) -> str:
    return value if value.startswith("CUDA_") else f"CU_MEM_ACCESS_FLAGS_PROT_{value}"


def _block(head: str, body: Sequence[str]) -> list[str]:
    return [f"{head} {{", *_indented(body, 1), "}"]


def _indented(lines: Iterable[str], depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" if line else line for line in lines]


# --- rules ---


def _rule(rule: Rule) -> str:
    verdict = enum_name(rule.verdict)
    names = re.findall(r"\{(\w+)\}", rule.why)
    text = re.sub(r"\{\w+\}", "%d", rule.why)
    values = "".join(f", found.{name}" for name in names)
    body = [f'snprintf(found.reason, sizeof found.reason, "{text}"{values});', f"finish({verdict}, found.reason);"]
    tests = [f"found.{rule.counter} >= {rule.at_least}"] if rule.at_least is not None else []
    tests += [f"found.{rule.counter} < {rule.below}"] if rule.below is not None else []
    lines = _block(f"if ({' && '.join(tests)})", body) if tests else body
    return "\n".join(_indented(lines, 1))


def file_name(bug: Bug) -> str:
    """What the file is called where nobody says otherwise."""
    return f"{bug.id.replace('-', '_')}.c"
