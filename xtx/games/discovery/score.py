"""Which numbers in memory are the score and the number of moves: those that the story prints when they are altered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xtx.games.catalog.finding import Finding, Sureness
from xtx.games.catalog.profile import Word
from xtx.games.discovery.probe import Probe
from xtx.games.emulator.frotz import Snapshot
from xtx.games.emulator.printed_score import NUMBER_WORDS, read_number

_TRIED = (207, 213)
"""Values that a variable is given; their difference shows in what is printed."""
_NUMBER = re.compile(r"-?\d+")
_TURNS = r"turn[oi]s?|movimientos?|z[uü]ge?n?|mosse|tours?|coups?|jogadas?|drag|beurten"
"""What turns are called in other languages than English."""
_POINTS = r"puntos?|puntuaci[oó]n|punkte?n?|punktzahl|punt[io]|punteggio|pontos?|pontua[cç][aã]o|po[aä]ng|punten"
_MOVES_BEHIND = re.compile(rf"^\W{{0,3}}(more )?(turns?|moves?|actions?|commands?|steps?|minutes?|{_TURNS})\b", re.I)
_MOVES_BEFORE = re.compile(rf"(?<![a-z])(turns?|moves?|{_TURNS})\b\W{{0,6}}( taken| made)?\W{{0,6}}$", re.I)
_NO_LIFE = r"(?<!hit )(?<!health )(?<!life )(?<!magic )(?<!skill )"
"""In front of a word for points: those of a fighter are not the score."""
_SCORE_BEFORE = re.compile(rf"(score|{_NO_LIFE}points?|{_POINTS})\W{{1,6}}$", re.I)
"""Without a border before the word: in a status line it may stand right behind the room's name."""
_MAXIMUM_BEFORE = re.compile(r"(\bout of|\bof a|\bof the|\bpossible|\bmaximum|\btotal( of)?|/)\W*(\w+\W+){0,3}$", re.I)
_MAXIMUM = re.compile(
    r"(?:\bout of|\bof|\bde|\bvon|\bdi|\bsur|/)\s*(?:an?\s+|the\s+)?(?:(?:total|possible|maximum|grand)\s+)*"
    r"(?:score\s+|total\s+)?(?:of\s+)?"
    r"(\d{1,5})\b",
    re.I,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
_POINTS_BEHIND = re.compile(rf"\s*(?:points?|{_POINTS})\b", re.I)
PRINTED = (
    r"(?i)\bscor(?:e|ed|es|ing)\b[^\d\n]{0,60}?(-?\d+)",
    r"(?i)(-?\d+)\s*(?:points?\b|out of\b)",
    r"(?i)\bscor(?:e|ed|es|ing)\b(?:\W+\w+){0,6}?\W+(no|zero|one|two|three|four|five|six|seven|eight|nine|ten)\b",
    rf"(?i)\b{_NO_LIFE}points?\W{{1,3}}(-?\d+)",
    r"(?i)(-?\d+) ?(?:%|percent\b|per cent\b)",
    rf"(?i)(-?\d+)\s*(?:{_POINTS})\b",
    rf"(?i)\b(?:{_POINTS})\W{{1,3}}(-?\d+)",
    rf"(?i)\b({NUMBER_WORDS}) points?\b",
)
"""How stories print a score, as regular expressions."""
_NO_SCORE = re.compile(r"\bno score\b|\bnot (have|keep|use) (a |any )?scor|\bno (points|scoring)\b(?! so)", re.I)
_COMPLAINT = re.compile(r"programming error|run-?time (error|problem)|\bvm error|object number", re.I)
_NOTE = re.compile(r"[^.\n]*\bgone (up|down) by\b[^\n]*", re.I)
"""What some stories print behind an answer when they see that there are more points than before."""
_MORE_TEXT = 150
"""Characters by which an answer may be longer with another score: for a rank, or a note that there are more points."""
_ELSEWHERE = (300, 306)
"""Values that a word of memory is given: too large for one byte, so that a byte is not taken for a word."""
_MOST_STATES = 3


@dataclass(frozen=True)
class Scoring:
    """What was found of score and moves."""

    score: Word | None
    moves: Word | None
    max_score: int
    printed: str
    """A regular expression that finds the score in the answer to `score`; empty for none."""
    findings: tuple[Finding, ...]


@dataclass
class _Shown:
    """A variable that shows in what is printed."""

    number: int
    role: str
    """score, moves or maximum."""
    offset: int
    """What is printed less the variable."""
    clarity: int = 0
    """2 where words call the number the score, 1 where the points that there are to get stand behind it, else 0."""


def find_scoring(probe: Probe, states: Sequence[Snapshot]) -> Scoring:
    """The score, the number of moves and the points that there are to get, from some states of a story."""
    text = _read_answer(probe, states[0])
    printed = find_pattern(text)
    shown = [_find_variables_shown(probe, state) for state in states[:_MOST_STATES]]
    score, score_finding = _find_common_variable(probe, shown, "score", "shown by the command score")
    moves, moves_finding = _find_common_variable(probe, shown, "moves", "shown by the command score")
    fixed = _find_fixed_by_version(probe)
    if fixed:
        how = "version 3 fixes it" + ("; shown by the command score" if score == fixed[0] else "")
        sureness: Sureness = "sure" if score in (None, fixed[0]) else "likely"
        score, score_finding = fixed[0], Finding("score", _name(probe, fixed[0]), sureness, how)
        moves, moves_finding = fixed[1], Finding("moves", _name(probe, fixed[1]), "sure", "version 3 fixes it")
    if score is None or moves is None:
        in_status = [_find_variables_shown(probe, state, in_status=True) for state in states[:_MOST_STATES]]
        if score is None:
            score, finding = _find_common_variable(probe, in_status, "score", "shown in the status line")
            score_finding = finding if score is not None else score_finding
        if moves is None:
            others = [[one for one in each if _place(probe, one.number) != score] for each in in_status]
            moves, moves_finding = _find_common_variable(probe, others, "moves", "shown in the status line")
    if moves is None:
        moves, moves_finding = _find_ticking(probe, states[0])
    elif not _counts_turns(probe, states[0], moves):
        how = f"{moves_finding.how}, but it grows by more than one a turn, as a time of day does"
        moves_finding = Finding("moves", moves_finding.value, "guessed", how)
    if score is None and printed:
        score, score_finding = _find_elsewhere(probe, states, printed)
    elif score is None and _NO_SCORE.search(text):
        score_finding = Finding("score", "none", "sure", "the story says that it keeps no score")
    max_score = read_maximum(text, printed) if score is not None or printed else 0
    maximum = (
        Finding("max_score", str(max_score), "likely", "printed by the command score")
        if max_score
        else Finding("max_score", "not found", "not found", "the command score prints none")
    )
    findings = score_finding, moves_finding, maximum
    return Scoring(score, moves, max_score, "" if score is not None else printed, findings)


def find_pattern(text: str) -> str:
    """The regular expression that finds a printed score in an answer; empty for none."""
    return next((pattern for pattern in PRINTED if re.search(pattern, text)), "")


def read_maximum(text: str, printed: str) -> int:
    """The points that there are to get, as an answer to `score` tells them; 0 if it does not. `printed` finds the score
    in it: numbers of other things (3 of 5 treasures) stand in other sentences."""
    told = [(one, found) for one in _SENTENCE_END.split(text) if printed and (found := re.search(printed, one))]
    behind = [most for sentence, score in told for most in _MAXIMUM.finditer(sentence, score.end(1))]
    beside = [most for sentence, _ in told for most in _MAXIMUM.finditer(sentence)]
    others = [most for most in _MAXIMUM.finditer(text) if not told or _POINTS_BEHIND.match(text, most.end())]
    return int((behind or beside or others)[0][1]) if behind or beside or others else 0


def _find_fixed_by_version(probe: Probe) -> tuple[Word, Word] | None:
    """Score and moves in version 3, where the interpreter draws the status line itself and so must know them; nothing
    in later versions, and where the story shows the time of day instead."""
    header = probe.emulator.header
    if header.version > 3 or probe.emulator.story.content[1] & 2:
        return None
    return Word(header.globals + 2), Word(header.globals + 4)


def _read_answer(probe: Probe, state: Snapshot, altered: bool = False, in_status: bool = False) -> str:
    """What the story answers to `score`, or shows in its status line. Where it makes one wait, also what comes then."""
    run = probe.run_altered if altered else probe.run
    answer = run(state, "look" if in_status else "score")
    if answer is None:
        return ""
    if in_status:
        return answer.status
    if answer.prompt != (state.pc, state.frames) and not _NUMBER.search(answer.text):
        more = run(answer.state, "")
        return answer.text + (more.text if more is not None else "")
    return _NOTE.sub("", answer.text)


def _find_elsewhere(probe: Probe, states: Sequence[Snapshot], printed: str) -> tuple[Word | None, Finding]:
    """The word of memory, among those that are no global variables and are as the score is now, that is printed as the
    score when it is altered. Without one the score is read from what is printed."""
    now = _read_printed_value(printed, _read_answer(probe, states[0])) or 0
    ram = states[0].ram
    found: list[int] = []
    variables = range(probe.globals, probe.globals + 2 * probe.number_of_globals)
    were_tried = printed != PRINTED[-1]  # but for numbers in digits only
    for address in range(64, len(ram) - 1):
        if were_tried and address in variables:
            continue
        if len(found) > 1 or probe.budget.is_spent:
            break
        if int.from_bytes(ram[address : address + 2], "big", signed=True) == now and all(
            _read_printed_value(printed, _read_answer(probe, probe.with_word(state, address, value), altered=True))
            == value
            for state in states[:2]
            for value in _ELSEWHERE
        ):
            found.append(address)
    if len(found) == 1:
        how = "shown by the command score"
        return Word(found[0]), Finding("score", f"address {found[0]}", "sure" if len(states) > 1 else "likely", how)
    how = "no number in memory is it, but the command score prints it"
    return None, Finding("score", "read from what is printed", "likely", how)


def _read_printed_value(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text) if pattern else None
    return read_number(found[1]) if found else None


def _name(probe: Probe, place: Word) -> str:
    return f"global {(place.address - probe.globals) // 2} (address {place.address})"


def _place(probe: Probe, number: int) -> Word:
    return Word(probe.globals + 2 * number)


def _find_variables_shown(probe: Probe, state: Snapshot, in_status: bool = False) -> list[_Shown]:
    """The global variables of which an answer shows the value, one number of it each."""
    usual = _read_answer(probe, state, in_status=in_status)
    found: list[_Shown] = []
    for number in range(probe.number_of_globals):
        if probe.budget.is_spent:
            break
        one, other = (
            _read_answer(probe, probe.with_global(state, number, value), altered=True, in_status=in_status)
            for value in _TRIED
        )
        at = _find_following_number(one, other) if _is_sane(one, usual) else None
        if at is not None:
            role = number_role(one, at, in_status)
            pattern = find_pattern(one)
            read = tuple(_read_printed_value(pattern, text) for text in (one, other))
            clarity = 2 if in_status or read == _TRIED else int(bool(_MAXIMUM.match(one[at.end() :].lstrip())))
            found.append(_Shown(number, role, int(at[0]) - _TRIED[0], clarity))
    return found


def _is_sane(text: str, usual: str) -> bool:
    """Whether an answer is like the usual one: an altered variable may also make a story complain."""
    return len(text) < 2 * len(usual) + _MORE_TEXT and not _COMPLAINT.search(text)


def _find_following_number(one: str, other: str) -> re.Match[str] | None:
    """The first number in a text that is larger in the other one, by as much as the variable is; behind it others may
    be, since some stories tell at once that there are more points now."""
    numbers, others = list(_NUMBER.finditer(one)), [found[0] for found in _NUMBER.finditer(other)]
    if len(numbers) != len(others):
        return None
    short = [(n, int(o) - int(n[0])) for n, o in zip(numbers, others, strict=True) if len(n[0]) + len(o) < 20]
    steps = [(n, step) for n, step in short if step]
    return steps[0][0] if steps and steps[0][1] == _TRIED[1] - _TRIED[0] else None


def number_role(text: str, at: re.Match[str], in_status: bool) -> str:
    """What a number in a text is: score, moves, maximum or unknown, by the words around it."""
    before, behind = text[max(0, at.start() - 40) : at.start()], text[at.end() : at.end() + 20]
    if _SCORE_BEFORE.search(before):  # first: in "Score: 5 Moves: 7" the word behind the 5 belongs to the 7
        return "score"
    if _MOVES_BEHIND.match(behind) or _MOVES_BEFORE.search(before):
        return "moves"
    if in_status:
        return "moves" if re.search(r"\d\s*/\s*$", before) else "unknown"  # as in 12/34
    return "maximum" if _MAXIMUM_BEFORE.search(before) else "score"


def _find_common_variable(
    probe: Probe, shown: Sequence[Sequence[_Shown]], role: str, how: str
) -> tuple[Word | None, Finding]:
    """The variable that plays a role in all of the states; none where several do, which must be summands then. Of
    several numbers in an answer it is the one that its words call the score."""
    offsets = (0,) if role == "score" else (0, 1, -1)
    told = [found for each in shown if (found := [o for o in each if o.role == role and o.offset in offsets])]
    clearest = max((one.clarity for each in told for one in each), default=0)
    named = {one.number for each in told for one in each if one.clarity == clearest > 0}
    common = set.intersection(*({one.number for one in each} for each in told)) if told else set()
    several = len(common) > 1
    if role == "score" and several:
        common &= named
    if len(common) != 1:
        why = "several variables show in what is printed" if several else "no variable shows in what is printed"
        return None, Finding(role, "not found", "not found", why)
    number = common.pop()
    place = _place(probe, number)
    sureness: Sureness = "sure" if len(told) > 1 else "likely"
    if role == "score" and number not in named:
        sureness, how = "guessed", f"{how}, which does not say what it is"
    return place, Finding(role, _name(probe, place), sureness, how)


def _counts_turns(probe: Probe, state: Snapshot, place: Word) -> bool:
    """Whether a number grows by one at most when one looks around, as far as that can be tried."""
    for _ in range(2):
        answer = probe.run(state, "look")
        if answer is None:
            break
        before, state = place.read(state.ram), answer.state
        if not 0 <= place.read(state.ram) - before <= 1:
            return False
    return True


def _find_ticking(probe: Probe, state: Snapshot) -> tuple[Word | None, Finding]:
    """The variable that goes up by one at every turn and at nothing else; the one with the least value, since a game
    begins with few moves."""
    rows, at = [probe.read_global_values(state)], state
    for command in ("wait", "wait", "wait", "look"):
        answer = probe.run(at, command)
        if answer is None:
            break
        at = answer.state
        rows.append(probe.read_global_values(at))
    nonsense = probe.run(at, "xyzzyplugh")
    still = probe.read_global_values(nonsense.state) if nonsense is not None else rows[-1]
    fitting = [
        number
        for number in range(probe.number_of_globals)
        if len(rows) > 3
        and all(rows[i + 1][number] - rows[i][number] == 1 for i in range(3))
        and still[number] == rows[-1][number]
    ]
    if not fitting:
        return None, Finding("moves", "not found", "not found", "no variable counts turns")
    place = Word(probe.globals + 2 * min(fitting, key=lambda number: (rows[0][number], number)))
    sureness: Sureness = "likely" if len(fitting) == 1 else "guessed"
    return place, Finding("moves", _name(probe, place), sureness, "goes up by one at every turn")
