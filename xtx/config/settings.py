"""Every setting, with what it means, and the presets: the paper's systems and its settings for each game.

Frozen dataclasses; the docstring under a field is its help on the command line. Numbers are the paper's unless it says
otherwise; docs/fidelity.md lists where we differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class TextSettings:
    """Words."""

    vocabulary: int = 2048
    """Rows of the vocabulary. When all are taken, new words share rows by their hash."""
    longest: int = 256
    """Maximum number of words of a text, including two marks; the rest is cut off."""


@dataclass(frozen=True)
class QSettings:
    """The Q-learner: networks, replay memory, updates."""

    hidden: int = 128
    """Width of embeddings, encoders and hidden layers."""
    gamma: float = 0.9
    """Discount of future rewards."""
    learning_rate: float = 1e-4
    """Learning rate of Adam."""
    clip: float = 5.0
    """Maximum norm of the gradient."""
    batch_size: int = 64
    """Transitions per update."""
    target_every: int = 100
    """Updates between copies to the target network."""
    temperature: float = 1.0
    """Temperature of the softmax over Q-values."""
    capacity: int = 10_000
    """Maximum number of transitions in the replay memory."""
    priority_share: float = 0.4
    """Share of the memory, and of each batch, that is reserved for the best episodes."""


@dataclass(frozen=True)
class InverseSettings:
    """Inverse dynamics: guess the action from the states before and after."""

    alpha1: float = 1.0
    """Weight of the inverse dynamics loss as intrinsic reward."""
    alpha2: float = 1.0
    """Weight of the inverse dynamics loss in learning."""
    alpha3: float = 1.0
    """Weight of the loss of decoding an action from its own code, in learning."""
    reads: Literal["difference", "both"] = "difference"
    """What the action is predicted from: [f_o(o); f_o(o') - f_o(o)] (difference), as in the authors' program, or
    [f_o(o); f_o(o')] (both), as in the paper's text."""


@dataclass(frozen=True)
class ImitationSettings:
    """Settings of the imitation policy; the defaults are the paper's."""

    layers: int = 3
    """Blocks of the transformer."""
    heads: int = 4
    """Attention heads per block."""
    width: int = 128
    """Width of the embedding of a token; the feed-forward layers are four times as wide."""
    context: int = 512
    """Maximum number of tokens of a context and its action together; the oldest are dropped."""
    action_room: int = 32
    """Tokens of the context that are reserved for the action, so that all actions of a state see the same context; a
    longer action is cut."""
    dropout: float = 0.1
    """Dropout probability of embeddings, attention, and the output of each layer."""
    learning_rate: float = 1e-3
    """Learning rate of AdamW, without weight decay."""
    batch_size: int = 64
    """Pairs of context and action per step."""
    passes: int = 40
    """Maximum number of passes over the buffer in one training."""
    enough: float = 0.0
    """A training ends after the pass whose mean loss is this close to the least possible loss; 0 makes all passes, as
    in the paper. A mean hides the few steps that are new in a buffer: see `known`."""
    known: float = 0.0
    """A training proceeds to its annealed passes once each trajectory of the buffer is produced word by word, without
    dropout, with this probability, relative to the best possible; 0 makes all passes, as in the paper."""
    anneal: float = 0.0
    """Share of the passes, at the end, over which the learning rate falls linearly to 0; 0 keeps it constant, as in the
    paper."""
    clip: float = 1.0
    """Maximum norm of the gradient."""
    temperature: float = 3.0
    """Factor of an action's mean log-probability in the softmax over the valid actions."""
    merge_identical: bool = False
    """Whether equal pairs of the buffer are put into the same batch and computed once, weighted by their number. This
    makes as many steps and is much faster, but the order and dropout of these pairs are no longer independent. Not in
    the paper."""

    def __post_init__(self) -> None:
        if not 0 < self.action_room < self.context - 1:
            raise ValueError("action_room must leave room for at least two tokens of context")


@dataclass(frozen=True)
class TrajectorySettings:
    """Which trajectories are imitated."""

    k: int = 10
    """Number of trajectories in the buffer."""
    beta1: float = 1.0
    """Preference for higher scores."""
    beta2: float = 10_000.0
    """Preference for shorter trajectories with the same score."""
    reservoir: int = 64
    """Maximum number of trajectories kept for each score and length."""
    floor: int | None = None
    """Scores below this are not drawn if there are others; the paper draws any score that was ever reached."""


@dataclass(frozen=True)
class DrrnSettings:
    """DRRN: Q-learning on texts, softmax policy."""

    text: TextSettings = field(default_factory=TextSettings)
    q: QSettings = field(default_factory=lambda: QSettings(capacity=500_000, priority_share=0.5))
    episode_limit: int = 100
    """Steps of an episode."""


@dataclass(frozen=True)
class InvDySettings:
    """INV-DY: DRRN with inverse dynamics as intrinsic reward."""

    text: TextSettings = field(default_factory=TextSettings)
    q: QSettings = field(default_factory=QSettings)
    inverse: InverseSettings = field(default_factory=InverseSettings)
    episode_limit: int = 100
    """Steps of an episode."""


@dataclass(frozen=True)
class RcDqnSettings:
    """RC-DQN: acting as reading comprehension (Guo et al. 2020); with history it is MPRC-DQN."""

    text: TextSettings = field(default_factory=lambda: TextSettings(longest=400))
    history: bool = False
    """Whether to read also earlier observations in which the objects of the current actions could be used."""
    history_window: int = 2
    """Number of these earlier observations."""
    hidden: int = 64
    """Width of the encoders, in each direction."""
    embedding: int = 100
    """Width of the embedding of a word."""
    longest_question: int = 8
    """Maximum number of words of a template; the rest is cut off."""
    most_actions: int = 64
    """Maximum number of actions of a state whose values are compared, the first ones; exploration draws from all."""
    gamma: float = 0.98
    """Discount of future rewards, which are clipped to their sign."""
    learning_rate: float = 1e-4
    """Learning rate of Adam."""
    clip: float = 10.0
    """Maximum norm of the gradient."""
    batch_size: int = 64
    """Transitions per update; updates begin when as many are stored."""
    target_every: int = 300
    """Updates between copies to the target network."""
    capacity: int = 20_000
    """Maximum number of transitions in the replay memory."""
    priority_share: float = 0.5
    """Share of the memory, and of each batch, that is reserved for episodes above the recent average."""
    usual_decay: float = 0.95
    """Weight of the earlier episodes in the recent average."""
    epsilon_start: float = 1.0
    """Initial probability of exploring."""
    epsilon_end: float = 0.05
    """Final probability of exploring."""
    epsilon_decay: float = 10_000.0
    """Game steps in which the difference between the two falls to 1/e."""
    episode_limit: int = 100
    """Steps of an episode."""


@dataclass(frozen=True)
class XtxSettings:
    """XTX: return to where the best trajectories led (exploit), then explore."""

    text: TextSettings = field(default_factory=TextSettings)
    q: QSettings = field(default_factory=QSettings)
    inverse: InverseSettings = field(default_factory=InverseSettings)
    imitation: ImitationSettings = field(default_factory=ImitationSettings)
    trajectories: TrajectorySettings = field(default_factory=TrajectorySettings)
    phases: bool = True
    """Whether each step belongs to the phase exploit or explore; without phases, `mix` applies to every step."""
    mix: float = 0.5
    """Share of the exploring policy: divided by `mix_over` in the phase exploit; as given without phases."""
    mix_over: Literal["l_max", "limit"] = "l_max"
    """Divisor of `mix` in the phase exploit: l_max, as in the authors' program, or the episode's step limit T = l_max +
    R, as in the paper's text, where the share is 1 / (2 T)."""
    own_targets: bool = False
    """Whether each episode returns to one of the imitated trajectories, drawn for it, and explores for R steps from
    there. Otherwise all return to the highest score among them, as in the paper."""
    retrace: bool = False
    """Whether an episode in the phase exploit repeats what its trajectory did in a state with the same texts, and asks
    the imitation policy elsewhere. Otherwise it always asks the policy, as in the paper."""
    uniform: bool = False
    """Whether to explore by drawing valid actions uniformly instead of by Q-values; then only imitation is learned."""
    explore_steps: int = 50
    """R: steps that an episode may take beyond the length of the longest imitated trajectory."""
    first_training: int = 500
    """Vector steps before the first imitation training."""
    training_every: int = 5
    """Imitation training takes place every this many times (l_max + explore_steps) vector steps."""
    training_every_episodes: int = 0
    """If not 0, imitation training takes place every this many episodes of all envs instead, as in the paper's text;
    then `first_training` and `training_every` have no effect."""


PAPER_STEPS = 800_000
DEMO_STEPS = 30_000


def get_default_length(agent: str) -> tuple[int, int]:
    """Return the number of game steps of an agent's run, and its number of envs, where nothing else is asked for."""
    if agent in ("rc-dqn", "mprc-dqn"):
        return 100_000, 1
    return DEMO_STEPS if agent == "xtx-demo" else PAPER_STEPS, 8


Actions = Literal["templates", "whole"]
"""What is tried for valid actions: the grammar's templates with the things in sight, or also every word of the
dictionary."""

PAPER_AGENTS = frozenset(
    ("drrn", "inv-dy", "rc-dqn", "mprc-dqn", "xtx", "xtx-uniform", "xtx-no-mix", "xtx-lambda-0", "xtx-lambda-0.5",
     "xtx-lambda-1"),
)  # fmt: skip
"""Agents whose settings and results are published."""


def get_default_actions(agent: str) -> Actions:
    """What an agent's run tries for valid actions unless told otherwise: the agents of the paper have the templates, so
    that their results can be compared with the paper's and with earlier runs. So has the demo, which is to take
    minutes: a search of its adventure with the whole dictionary takes 1.5 times the processor time."""
    return "templates" if agent in PAPER_AGENTS | {"xtx-demo"} else "whole"


ALPHA1 = {"deephome": 0.1, "enchanter": 0.5, "ludicorp": 0.5, "omniquest": 2.0, "detective": 2.0, "pentari": 2.0}
"""The paper's weight of the intrinsic reward in XTX, where it is not 1."""


def make_xtx_settings(game: str = "") -> XtxSettings:
    """The paper's settings of XTX for a game."""
    return XtxSettings(inverse=InverseSettings(alpha1=ALPHA1.get(game, 1.0)))


SHORTER_IMITATION: dict[str, object] = {"merge_identical": True, "passes": 160, "known": 0.8, "anneal": 1 / 16}
"""The imitation training of `xtx-fast`: equal pairs are computed once, and the training ends ten annealed passes after
each trajectory is known. Batches of merged pairs have fewer different pairs than the paper's, so steps are noisier:
where everything is new more of them are needed than the paper's 40 passes have, and elsewhere far fewer. The figures
are in docs/notes/2026-11-19-xtx-fast.md."""


XTX_VARIANTS: dict[str, dict[str, object]] = {
    "xtx": {},
    "xtx-uniform": {"uniform": True},
    "xtx-no-mix": {"mix": 0.0},
    "xtx-lambda-0": {"phases": False, "mix": 0.0},
    "xtx-lambda-0.5": {"phases": False, "mix": 0.5},
    "xtx-lambda-1": {"phases": False, "mix": 1.0},
    "xtx-own": {"own_targets": True},
    "xtx-retrace": {"retrace": True},
    "xtx-plus": {"own_targets": True, "retrace": True},
}
"""XTX, its ablations and what goes past the paper, each with what its preset changes in the paper's settings of XTX."""


EARLIER_IMITATION: dict[str, object] = {"merge_identical": True, "enough": 0.005}
"""The imitation training of `xtx-fast` in earlier versions. Runs that were begun with it keep it."""


def make_fast_settings(game: str = "", imitation: Mapping[str, object] = SHORTER_IMITATION) -> XtxSettings:
    """XTX for a CPU: the paper's settings, but for how long an imitation training takes."""
    settings = make_xtx_settings(game)
    return replace(settings, imitation=replace(settings.imitation, **imitation))  # type: ignore[arg-type]


QLearning = DrrnSettings | InvDySettings | XtxSettings


def make_demo_settings(settings: QLearning) -> QLearning:
    """The same agent made small, for runs of minutes on two cores on the embedded adventure: narrower networks that
    learn faster, fewer words, smaller batches. XTX also plans anew more often, gives each episode a target of its own,
    learns its trajectories no longer than needed, and explores for fewer steps at a higher temperature: the quickest
    points of that adventure lie in a trap, and with the paper's settings it would take far longer than minutes to leave
    it."""
    text = replace(settings.text, vocabulary=1024)
    q = replace(settings.q, hidden=64, learning_rate=1e-3)
    if not isinstance(settings, XtxSettings):
        return replace(settings, text=text, q=q)
    return replace(
        settings,
        text=text,
        q=replace(q, temperature=10.0, batch_size=32),
        imitation=replace(
            settings.imitation,
            layers=2,
            width=64,
            batch_size=16,
            dropout=0.0,
            passes=25,
            enough=0.01,
            merge_identical=True,
            learning_rate=2e-3,
        ),
        trajectories=replace(settings.trajectories, k=4, beta1=1.5),
        mix=0.1,
        own_targets=True,
        explore_steps=30,
        first_training=100,
        training_every=1,
    )


@dataclass(frozen=True)
class RunConfig:
    """A run: game, agent, settings, length. Kept as config.json in the run's folder."""

    game: str
    """Name of the game, or path of its story."""
    agent: str
    settings: dict[str, object]
    """The agent's, all of them."""
    seed: int = 0
    steps: int = 800_000
    """Game steps of the whole run."""
    num_envs: int = 8
    """Envs: copies of the game that are stepped together."""
    stochastic: bool = False
    """Another emulator seed in every episode."""
    extra_actions: bool = False
    """The actions that the paper adds to the game's grammar."""
    byte_score: bool = False
    """The score is one signed byte, as that of Dragon was in the paper's version of Jericho: -130 counts as 126."""
    actions: Actions = "templates"
    """What is tried for valid actions. The default is what a file without this key means: a run of a version before
    there was a choice. New runs have `get_default_actions`, and always write the key."""
    thorough_survey: bool = False
    """Minutes instead of seconds for the survey of the story, so that more states share their valid actions."""
    log_every: int = 100
    """Vector steps between lines of metrics.jsonl."""
    wide_grammar: bool = False
    """Of earlier versions: forms beyond the grammar's templates were tried too. Such a run can be read, not resumed."""
