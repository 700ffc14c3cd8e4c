"""The agent XTX: return targets, phases, mixture and training schedule, on scripted transitions with tiny networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import xtx.agents.state_ids
from xtx.agents.action_choice import draw, softmax, uniform
from xtx.agents.registry import AGENTS, make_preset
from xtx.agents.state_ids import EncodedState
from xtx.agents.xtx.retrace import TrajectoryReplay
from xtx.agents.xtx.xtx_agent import EXPLOIT, EXPLORE, ReturnTarget, XtxAgent
from xtx.config.config_file import replace_old_settings
from xtx.config.settings import ALPHA1, ImitationSettings, QSettings, TextSettings, TrajectorySettings, XtxSettings
from xtx.core import Brief, Decision, Observation, Transition

TINY = XtxSettings(
    text=TextSettings(64, 16),
    q=QSettings(hidden=8, batch_size=8, capacity=200),
    imitation=ImitationSettings(layers=1, heads=1, width=8, passes=1, context=64, action_room=8),
    first_training=7,
    explore_steps=5,
)
VARIANTS = ("xtx", "xtx-uniform", "xtx-no-mix", "xtx-lambda-0", "xtx-lambda-0.5", "xtx-lambda-1")


def tiny(name: str, **changes: object) -> XtxSettings:
    """The variant's own settings at a tiny size."""
    real = make_preset(name, "")
    return replace(TINY, phases=real.phases, mix=real.mix, uniform=real.uniform, **changes)  # type: ignore[arg-type]


def observation(score: int = 0, step: int = 0, text: str = "here") -> Observation:
    return Observation(text, "a room", "a lamp", ("go", "stay", "look around"), score, step)


# --- phases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "l_max", "score", "step", "phase"),
    [
        (0, 0, 0, 0, EXPLORE),  # before the first training
        (10, 20, 0, 0, EXPLOIT),
        (10, 20, 9, 19, EXPLOIT),
        (10, 20, 9, 20, EXPLORE),  # time is up
        (10, 20, 10, 5, EXPLORE),  # there
        (10, 20, 12, 5, EXPLORE),
        (10, 20, -5, 3, EXPLOIT),
        (0, 20, 0, 3, EXPLORE),  # nothing to win by returning
        (0, 20, -1, 3, EXPLOIT),  # points were lost
    ],
)
def test_phases(target: int, l_max: int, score: int, step: int, phase: str) -> None:
    assert ReturnTarget(target, l_max).choose_phase(observation(score, step)) == phase


def test_phases_are_never_latched() -> None:
    """An episode that reaches the target and loses points before step l_max is in `exploit` again."""
    scores = [0, 5, 10, 10, 4, 10, 4, 4]
    phases = [ReturnTarget(10, 7).choose_phase(observation(score, step)) for step, score in enumerate(scores)]
    assert phases == [EXPLOIT, EXPLOIT, EXPLORE, EXPLORE, EXPLOIT, EXPLORE, EXPLOIT, EXPLORE]


# --- choosing -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(0.1, 10))
def test_softmax(values: list[float], temperature: float) -> None:
    found = softmax(np.array(values, np.float32), temperature)
    powers = [np.exp(np.float64(np.float32(v)) / temperature) for v in values]
    # Below 1e-307 numbers have fewer digits.
    np.testing.assert_allclose(found, [power / sum(powers) for power in powers], rtol=1e-9, atol=1e-307)


def test_drawing_follows_the_probabilities() -> None:
    random = np.random.default_rng(0)
    chances = np.array([0.5, 0.0, 0.2, 0.3])
    drawn = np.bincount([draw(random, chances) for _ in range(10_000)], minlength=4) / 10_000
    np.testing.assert_allclose(drawn, chances, atol=0.02)
    assert drawn[1] == 0
    assert uniform(4).tolist() == [0.25] * 4


class Fixed:
    """Two policies that never agree: imitation says `go`, exploring says `stay`."""

    def __init__(self, agent: XtxAgent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.imitated = self.explored = 0
        monkeypatch.setattr(agent._imitation, "start", self._imitate)
        monkeypatch.setattr(agent, "_explore", self._explore)

    def _imitate(self, contexts: Sequence[object], lists: Sequence[object]) -> Callable[[], list[NDArray[np.float64]]]:
        self.imitated += len(contexts)
        return lambda: [np.array([1.0, 0.0, 0.0])] * len(contexts)

    def _explore(self, states: Sequence[object]) -> list[NDArray[np.float64]]:
        self.explored += len(states)
        return [np.array([0.0, 1.0, 0.0])] * len(states)


def test_the_mixture_is_drawn_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """lambda = 0.5 / l_max while returning, 1 while exploring: by frequencies and as `insight` tells it."""
    agent = XtxAgent(tiny("xtx"), Brief(num_envs=2, seed=0))
    Fixed(agent, monkeypatch)
    agent._plan = ReturnTarget(target_score=10, l_max=4)
    n = 8000
    drawn = [agent.act([observation(3, 2), observation(10, 2)]) for _ in range(n)]
    assert {decisions[1] for decisions in drawn} == {Decision("stay", EXPLORE)}
    assert {decisions[0].phase for decisions in drawn} == {EXPLOIT}
    explored = sum(decisions[0].action == "stay" for decisions in drawn) / n
    chance = 0.5 / 4
    assert explored == pytest.approx(chance, abs=4 * (chance * (1 - chance) / n) ** 0.5)
    assert agent.insight(observation(3, 2), []).probabilities == {"go": 1 - chance, "stay": chance, "look around": 0}
    assert agent.insight(observation(3, 4), []).probabilities == {"go": 0, "stay": 1, "look around": 0}


@pytest.mark.parametrize(
    ("name", "returning", "exploring", "beginning"),
    [
        ("xtx", 0.5 / 4, 1, 1),
        ("xtx-uniform", 0.5 / 4, 1, 1),
        ("xtx-no-mix", 0, 1, 1),
        ("xtx-lambda-0", 0, 0, 0),
        ("xtx-lambda-0.5", 0.5, 0.5, 0.5),
        ("xtx-lambda-1", 1, 1, 1),
    ],
)
def test_how_often_each_system_explores(
    name: str, returning: float, exploring: float, beginning: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way back, beyond it, and before anything was imitated."""
    agent = XtxAgent(tiny(name), Brief(num_envs=1, seed=0))
    fixed = Fixed(agent, monkeypatch)
    for plan, seen, share in (
        (ReturnTarget(), observation(0, 0), beginning),
        (ReturnTarget(10, 4), observation(3, 2), returning),
        (ReturnTarget(10, 4), observation(10, 2), exploring),
    ):
        agent._plan = plan
        fixed.imitated = fixed.explored = 0
        assert agent.insight(seen, []).probabilities["stay"] == pytest.approx(share)
        fixed.imitated = fixed.explored = 0
        for _ in range(1000):
            agent.act([seen])
        assert fixed.explored / 1000 == pytest.approx(share, abs=4 * (share * (1 - share) / 1000) ** 0.5)


def test_each_episode_may_have_a_target_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn among the imitated trajectories when it begins, and kept until it ends."""
    agent = XtxAgent(tiny("xtx", own_targets=True), Brief(num_envs=2, seed=0))
    Fixed(agent, monkeypatch)
    agent._trajectory_targets = [ReturnTarget(5, 2), ReturnTarget(10, 4), ReturnTarget(10, 4)]
    explored = 0
    for _ in range(1000):
        agent.act([observation(), observation()])
        phases = [[d.phase for d in agent.act([observation(7, 1), observation(7, 1)])] for _ in range(3)]
        assert phases[0] == phases[1] == phases[2]
        explored += phases[0].count(EXPLORE)
    assert explored / 2000 == pytest.approx(1 / 3, abs=4 * (2 / 9 / 2000) ** 0.5)


def test_own_targets_are_the_trajectories_that_are_imitated() -> None:
    """Episodes that have begun get new targets after a training; a loaded agent has the same targets."""
    settings = tiny("xtx", own_targets=True, trajectories=TrajectorySettings(k=3))
    agent = XtxAgent(settings, Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: step)
    for _ in range(7):
        script.step()
    assert len(agent._trajectory_targets) == 3
    assert all(aim.target_score == aim.l_max > 0 for aim in agent._trajectory_targets)
    assert set(agent._episode_targets) <= set(agent._trajectory_targets)
    assert agent.episode_limit == max(aim.l_max for aim in agent._trajectory_targets) + 5
    assert [agent.limit_of(game) for game in (0, 1)] == [aim.l_max + 5 for aim in agent._episode_targets]
    other = XtxAgent(settings, Brief(num_envs=2, seed=1))
    other.load(agent.state())
    assert (other._trajectory_targets, other._episode_targets, other._plan) == (
        agent._trajectory_targets,
        agent._episode_targets,
        agent._plan,
    )


def test_a_way_is_known_by_its_texts() -> None:
    """At the same step first, else the last time that it came by."""
    way = TrajectoryReplay(np.array([[1, 2, 3, 10], [4, 2, 3, 11], [1, 2, 3, 12]], np.int32))
    assert [way.find_action(EncodedState(1, 2, 3, 0), step) for step in (0, 1, 2, 3)] == [10, 12, 12, 12]
    assert way.find_action(EncodedState(4, 2, 3, 7), 0) == 11
    assert way.find_action(EncodedState(1, 2, 4, 0), 0) is None


def test_a_way_back_is_retraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its texts come again; the imitation policy is asked elsewhere, and the exploring one as often as ever."""
    agent = XtxAgent(tiny("xtx-no-mix", retrace=True), Brief(num_envs=2, seed=0))
    fixed = Fixed(agent, monkeypatch)
    text = agent._state_ids.texts.id
    known, new = observation(0, 0), observation(0, 0, text="elsewhere")
    beyond = observation(10, 0)
    rows = [[text(known.text), text(known.look), text(known.inventory), text(known.actions[-1])]]
    agent._replays = [TrajectoryReplay(np.array([[0, 0, 0, 0]], np.int32)), TrajectoryReplay(np.array(rows, np.int32))]
    agent._plan = ReturnTarget(10, 4, 1)
    decisions = agent.act([known, new])
    assert decisions[0].action == known.actions[-1]
    assert (fixed.imitated, fixed.explored) == (1, 0) and agent._replayed_share == 0.5
    assert agent.insight(known, []).probabilities[known.actions[-1]] == 1
    agent.act([beyond, beyond])
    assert fixed.explored == 2 and agent._replayed_share is None
    # What it did may not be possible any more, for all that can be read.
    rows[0][3] = text("an action that is not offered")
    agent._replays[1] = TrajectoryReplay(np.array(rows, np.int32))
    fixed.imitated = 0
    agent.act([known, known])
    assert fixed.imitated == 2


@pytest.mark.parametrize("own", [False, True])
def test_ways_are_those_that_are_imitated(own: bool) -> None:
    """The plan's is the shortest to its score; a loaded agent has the same, and nothing of them is forgotten."""
    settings = tiny("xtx", own_targets=own, retrace=True, trajectories=TrajectorySettings(k=3))
    agent = XtxAgent(settings, Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: step)
    for _ in range(7):
        script.step()
    assert [len(way.steps) for way in agent._replays] == [target.l_max for target in agent._trajectory_targets]
    assert agent._trajectory_targets[agent._plan.trajectory].target_score == agent._plan.target_score
    assert all(agent._trajectory_targets[aim.trajectory] == aim for aim in agent._episode_targets) or not own
    for _ in range(20):
        script.step()
    # Those that started as the trajectory did can do what it did; those of the other game must imitate at first.
    shares = [numbers["retraced"] for numbers in script.numbers if "retraced" in numbers]
    assert max(shares) == 1 and min(shares) < 1 and 0 < np.mean(shares) < 1
    other = XtxAgent(settings, Brief(num_envs=2, seed=1))
    other.load(agent.state())
    assert [way.steps.tolist() for way in other._replays] == [way.steps.tolist() for way in agent._replays]
    before = [agent._state_ids.texts.text(int(n)) for way in agent._replays for n in way.steps.ravel()]
    agent._drop_unused_texts([agent._state_ids.encode(o) for o in script.now])
    assert [agent._state_ids.texts.text(int(n)) for way in agent._replays for n in way.steps.ravel()] == before


def test_what_goes_past_the_paper_is_said_by_the_name() -> None:
    paper = make_preset("xtx", "deephome")
    assert not paper.own_targets and not paper.retrace
    for name, changes in {
        "xtx-own": {"own_targets": True},
        "xtx-retrace": {"retrace": True},
        "xtx-plus": {"own_targets": True, "retrace": True},
    }.items():
        assert make_preset(name, "deephome") == replace(paper, **changes)  # type: ignore[arg-type]


def test_the_fast_preset_changes_imitation_training_only() -> None:
    for game in ("deephome", "zork1"):
        paper, fast = make_preset("xtx", game), make_preset("xtx-fast", game)
        assert fast == replace(paper, imitation=fast.imitation)
        changed = {name for name, value in asdict(fast.imitation).items() if value != getattr(paper.imitation, name)}
        assert changed == {"merge_identical", "passes", "known", "anneal"}
        assert paper.imitation.known == paper.imitation.anneal == 0


def test_a_run_begun_with_earlier_settings_of_the_fast_preset_keeps_them() -> None:
    """Its config.json has `enough`, and lacks the settings that there were not yet."""
    earlier = asdict(make_preset("xtx", "zork1"))
    earlier["imitation"] |= {"merge_identical": True, "enough": 0.005}
    del earlier["imitation"]["known"], earlier["imitation"]["anneal"]
    read = msgspec.convert(replace_old_settings(earlier, XtxSettings()), XtxSettings)
    assert read.imitation == replace(make_preset("xtx", "zork1").imitation, merge_identical=True, enough=0.005)


def test_uniform_exploring_is_uniform() -> None:
    agent = XtxAgent(tiny("xtx-uniform"), Brief(num_envs=1, seed=0))
    assert set(agent.insight(observation(), []).probabilities.values()) == {1 / 3}
    assert agent.state()["learner"] is None


def test_presets_are_the_papers() -> None:
    for name in VARIANTS:
        for game, alpha1 in {**ALPHA1, "zork1": 1.0, "": 1.0}.items():
            settings = make_preset(name, game)
            assert settings.inverse.alpha1 == alpha1
            assert (settings.inverse.alpha2, settings.inverse.alpha3) == (1.0, 1.0)
        q, imitation, tried = settings.q, settings.imitation, settings.trajectories
        assert (q.hidden, q.gamma, q.learning_rate, q.clip, q.batch_size) == (128, 0.9, 1e-4, 5.0, 64)
        assert (q.target_every, q.temperature, q.capacity, q.priority_share) == (100, 1.0, 10_000, 0.4)
        assert (imitation.layers, imitation.heads, imitation.width, imitation.context) == (3, 4, 128, 512)
        assert (imitation.dropout, imitation.learning_rate, imitation.batch_size) == (0.1, 1e-3, 64)
        assert (imitation.passes, imitation.clip, imitation.temperature) == (40, 1.0, 3.0)
        assert tried == TrajectorySettings(k=10, beta1=1.0, beta2=10_000.0, reservoir=64)
        assert (settings.explore_steps, settings.first_training, settings.training_every) == (50, 500, 5)
    assert ALPHA1 == {
        "deephome": 0.1, "enchanter": 0.5, "ludicorp": 0.5, "omniquest": 2.0, "detective": 2.0, "pentari": 2.0
    }  # fmt: skip
    for game in ALPHA1:
        assert make_preset("inv-dy", game).inverse.alpha1 == 1.0
    assert make_preset("drrn", "").q == QSettings(capacity=500_000, priority_share=0.5)
    assert (make_preset("drrn", "").episode_limit, make_preset("inv-dy", "").episode_limit) == (100, 100)
    assert set(VARIANTS) < set(AGENTS)


# --- plan and schedule ----------------------------------------------------------------------------------------------


class Script:
    """Games without an emulator: `score(game, step)` says the score after each step, `over(game, step)` when a game
    ends by itself. Does what the loop does, and notes what the agent was told and did."""

    def __init__(
        self,
        agent: XtxAgent,
        games: int,
        score: Callable[[int, int], int],
        over: Callable[[int, int], bool] = lambda game, step: False,
    ) -> None:
        self.agent = agent
        self._score, self._over = score, over
        self.now = [observation(text=f"start {game}") for game in range(games)]
        self.numbers: list[dict[str, float]] = []
        self.lengths: list[list[int]] = [[] for _ in range(games)]
        self.decisions: list[list[Decision]] = []

    def step(self) -> None:
        decisions = self.agent.act(self.now)
        transitions = []
        for game, (before, decision) in enumerate(zip(self.now, decisions, strict=True)):
            step = before.step + 1
            over = self._over(game, step)
            after = observation(self._score(game, step), step, f"{decision.action} {step}")
            if over:
                after = Observation("the end", "", "", (), after.score, step)
            limited = not over and step >= self.agent.limit_of(game)
            transitions.append(Transition(game, before, decision, after.score - before.score, after, over, limited))
        self.now = [observation(text=f"start {t.game}") if t.ended else t.after for t in transitions]
        for t in transitions:
            if t.ended:
                self.lengths[t.game].append(t.after.step)
        self.decisions.append(decisions)
        self.numbers.append(dict(self.agent.learn(transitions)))


def test_the_schedule_of_imitation() -> None:
    """First after 7 vector steps, then every 5 * (l_max + 5). The game gives 3 points at its third step: the limit of
    5 steps is reached before the first training, so M = 3 and l_max = 3 from the start on."""
    agent = XtxAgent(tiny("xtx"), Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: 3 if step >= 3 else 0)
    plans = []
    for _ in range(100):
        script.step()
        plans.append((agent.describe()["target_score"], agent.describe()["l_max"], agent.episode_limit))
    trained = [place + 1 for place, numbers in enumerate(script.numbers) if "imitation_loss_last" in numbers]
    assert trained == [7, 7 + 40, 7 + 80]
    assert plans[5] == (0, 0, 5)
    assert plans[6] == plans[99] == (3, 3, 8)
    # The episode that had begun at step 5 and was under way at 7 already has the new limit.
    assert script.lengths[0][:3] == [5, 8, 8]
    # Before the first training everything explores; then steps with less than 3 points before step 3 return.
    phases = [decisions[0].phase for decisions in script.decisions]
    assert phases[:7] == [EXPLORE] * 7
    assert phases[13:21] == [EXPLOIT] * 3 + [EXPLORE] * 5


def test_the_schedule_of_imitation_by_episodes() -> None:
    """The paper's reading: a training after every 3 episodes of the two games, whatever the vector steps."""
    agent = XtxAgent(tiny("xtx", training_every_episodes=3), Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: 3 if step >= 3 else 0)
    ended = []
    for _ in range(40):
        script.step()
        ended.append(sum(map(len, script.lengths)))
    trained = [place for place, numbers in enumerate(script.numbers) if "imitation_loss_last" in numbers]
    # Both games end together: after two such ends 4 episodes have ended, and again 4 later.
    assert [ended[place] for place in trained] == list(range(4, ended[-1] + 1, 4)) and len(trained) >= 2
    assert trained[0] == 9, "not after 7 vector steps, when the other schedule trains"
    other = XtxAgent(tiny("xtx", training_every_episodes=3), Brief(num_envs=2, seed=0))
    agent._ended = 2
    other.load(agent.state())
    assert other._ended == 2


@pytest.mark.parametrize(("mix_over", "share"), [("l_max", 0.5 / 20), ("limit", 1 / (2 * (20 + 5)))])
def test_the_exploring_share_on_the_way_back(mix_over: str, share: float) -> None:
    """The authors' program divides by l_max, the paper by the limit T = l_max + R; here R is 5."""
    agent = XtxAgent(tiny("xtx", mix_over=mix_over), Brief(num_envs=1, seed=0))
    assert agent._explore_share(observation(0, 3), ReturnTarget(10, 20)) == pytest.approx(share)
    assert agent._explore_share(observation(10, 3), ReturnTarget(10, 20)) == 1


def test_a_shorter_limit_ends_episodes_under_way() -> None:
    """A plan with a smaller l_max than an episode is old already ends it with its next step."""
    agent = XtxAgent(tiny("xtx", first_training=1000), Brief(num_envs=1, seed=0))
    script = Script(agent, 1, lambda game, step: 0)
    agent._plan = ReturnTarget(0, 20)
    for _ in range(10):
        script.step()
    agent._plan = ReturnTarget(0, 1)
    script.step()
    assert script.lengths == [[11]]


def test_nothing_to_imitate_yet() -> None:
    """No episode has ended when the first training is due: the plan stays, and the next try is a period later."""
    agent = XtxAgent(tiny("xtx", first_training=3), Brief(num_envs=1, seed=0))
    script = Script(agent, 1, lambda game, step: 1)
    for _ in range(28):
        script.step()
    trained = [place + 1 for place, numbers in enumerate(script.numbers) if "imitation_loss_last" in numbers]
    assert trained == [3 + 25]


def test_game_over_states_are_not_returned_to() -> None:
    """9 points, but only with the step that ends the game: 2 points at step 2 are the best that can be imitated."""
    agent = XtxAgent(tiny("xtx"), Brief(num_envs=2, seed=0))
    script = Script(
        agent, 2, lambda game, step: 9 if step == 4 else 2 if step >= 2 else 0, lambda game, step: step == 4
    )
    for _ in range(8):
        script.step()
    assert (agent.describe()["target_score"], agent.describe()["l_max"]) == (2, 2)
    assert script.lengths[0] == [4, 4]


def test_without_imitation_the_limits_still_move() -> None:
    """lambda = 1 is INV-DY under XTX's episode limits; the imitation policy is never asked, so it is not trained."""
    agent = XtxAgent(tiny("xtx-lambda-1"), Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: 3 if step >= 3 else 0)
    for _ in range(8):
        script.step()
    assert agent.episode_limit == 8
    assert not any("imitation_loss_last" in numbers for numbers in script.numbers)


def test_what_is_remembered_is_what_was_done() -> None:
    """The trajectory that is imitated is the episode's own texts and actions, and contexts hold the two actions before
    the present one, from no others than the same episode's."""
    agent = XtxAgent(tiny("xtx", trajectories=TrajectorySettings(k=50)), Brief(num_envs=2, seed=0))
    script = Script(agent, 2, lambda game, step: step)
    trained: list[list[NDArray[np.int32]]] = []
    train = agent._imitation.train

    def spy(prefixes: Sequence[NDArray[np.int32]]) -> dict[str, float]:
        trained.append(list(prefixes))
        return train(prefixes)

    agent._imitation.train = spy  # type: ignore[method-assign, assignment]
    for _ in range(7):
        script.step()
    text = agent._state_ids.texts.text
    done = {game: [decisions[game].action for decisions in script.decisions[:5]] for game in range(2)}
    [prefixes] = trained
    assert {len(prefix) for prefix in prefixes} == {1, 2, 3, 4, 5}
    for prefix in prefixes:
        rows = [tuple(map(text, row)) for row in prefix.tolist()]
        game = int(rows[0][0].split()[1])
        narrations = [f"start {game}", *(f"{action} {step + 1}" for step, action in enumerate(done[game]))]
        expected = [(narrations[step], "a room", "a lamp", done[game][step]) for step in range(len(rows))]
        assert rows == expected
    previous = [tuple("" if number < 0 else text(number) for number in pair) for pair in agent._previous]
    assert previous == [(script.decisions[5][game].action, script.decisions[6][game].action) for game in range(2)]
    script.now = [observation(text="anew") for _ in range(2)]
    agent.act(script.now)
    assert [pair[0] for pair in agent._previous] == [-1, -1]


@pytest.mark.parametrize("name", VARIANTS)
def test_forgetting_texts_in_the_middle_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of texts are given to other texts, and the run does not notice."""

    def run(first_sweep: int) -> tuple[list[dict[str, float]], list[list[Decision]], int]:
        monkeypatch.setattr(xtx.agents.state_ids, "MIN_IDS_TO_DROP", first_sweep)
        small = replace(TINY.q, capacity=60)
        agent = XtxAgent(tiny(name, q=small, explore_steps=40), Brief(num_envs=3, seed=1))
        script = Script(agent, 3, lambda game, step: min(step, 4), lambda game, step: step == 6)
        for place in range(60):
            script.now = [replace(o, text=f"{o.text} {place % 37}") for o in script.now]
            script.step()
        return script.numbers, script.decisions, len(agent._state_ids.texts)

    plain, decided, many = run(10_000)
    swept, again, few = run(20)
    assert few < many
    assert again == decided
    for one, other in zip(plain, swept, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_an_agent_goes_on_exactly(name: str) -> None:
    def script() -> Script:
        agent = XtxAgent(tiny(name), Brief(num_envs=3, seed=1))
        return Script(agent, 3, lambda game, step: step // 2, lambda game, step: step == 11 + game)

    plain, stopped = script(), script()
    for place in range(60):
        if place in (6, 33, 50):  # also right before the first training, and in the middle of episodes
            state = stopped.agent.state()
            stopped.agent = XtxAgent(tiny(name), Brief(num_envs=3, seed=1))
            stopped.agent.load(state)
        plain.step()
        stopped.step()
        assert stopped.decisions[-1] == plain.decisions[-1]
        assert stopped.numbers[-1] == plain.numbers[-1]
        assert stopped.agent.describe() == plain.agent.describe()
