"""Rules on what fits together among the sections of params.yaml; they read facts of the sections.

A rule takes all parameters and raises a ValueError that says what does not fit. Rules name no method, pipeline or arm;
what is true of one is in its own class or record.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from harr.arms import ARMS, TRAINED
from harr.params.generator import GOLD, GeneratorParams
from harr.params.pipeline import PipelineFacts
from harr.params.rule_words import LANGUAGE_MODEL, either, members, methods, tag
from harr.params.rules_retriever import RETRIEVER_RULES

if TYPE_CHECKING:
    from harr.params import Params


def _tools(pipeline: PipelineFacts) -> tuple[str, ...]:
    """Return the tools that the searches of a pipeline name; most name none."""
    return getattr(pipeline, "tools", ())


def generator_is_needed(params: "Params") -> None:
    """Check that a pipeline has a language model exactly if it needs one."""
    pipeline, kind = params.pipeline, params.generator.kind
    if not pipeline.foreign and pipeline.needs_generator == (kind == "none"):
        raise ValueError(
            f"pipeline {pipeline.name} and generator {kind}: a pick without reader needs kind none, "
            "the others need a generator"
        )


def traces_are_of_the_pipeline(params: "Params") -> None:
    """Check that a model taught by traces plays the pipeline for which they are made."""
    pipeline, (traced, template) = params.pipeline, params.generator.traces_of
    if traced and not pipeline.foreign and (pipeline.name, getattr(pipeline, "template", "")) != (traced, template):
        raise ValueError(
            f"generator.warmstart.demonstrations names a function: traces are made for pipeline {traced} with template "
            f"{template}; set pipeline so, or name a file of demonstrations"
        )


def readings_are_for_a_reader(params: "Params") -> None:
    """Check that examples of reading teach a reader."""
    warmstart = getattr(params.generator, "warmstart", None)
    if warmstart and warmstart.demonstrations == GOLD and not getattr(params.pipeline, "reader", False):
        raise ValueError(
            f"generator.warmstart.demonstrations {GOLD} teaches the reader of pipeline pick; set pipeline: {{name: pick, "
            "reader: true}, or name a file of demonstrations"
        )


def a_state_has_one_query(params: "Params") -> None:
    """Check that the prompt before a state does not end with the label that begins the state's query."""
    if params.retriever.state != "sep" and (params.encoder.query_prompt or "").rstrip().endswith("Query:"):
        raise ValueError(
            f"encoder.query_prompt ends with Query:, which retriever.state {params.retriever.state} writes itself; "
            "end it with a line break"
        )


def sources_are_asked(params: "Params") -> None:
    """Check that every tool has a source, every source is asked, and sources are searched unchanged."""
    sources, tools = set(params.sources), set(_tools(params.pipeline))
    if not sources:
        return
    if tools and (lacking := tools - sources):
        raise ValueError(f"pipeline.tools {min(lacking)} has no source; add sources.{min(lacking)}")
    if tools and (unasked := sources - tools):
        raise ValueError(f"sources.{min(unasked)} is asked by no tool; leave it out, or add it to pipeline.tools")
    if not (params.train.sources or params.train.foreign):
        raise ValueError(
            f"train.method {params.train.method} learns from what our own index finds, and sources do not learn; "
            f"leave sources out, or set train.method: {methods(sources=True)}"
        )
    if "question" in (params.retriever.candidates, *params.evaluate.candidates):
        raise ValueError("sources are searched as they are, not the passages given; set candidates: corpus")


def method_plays_the_pipeline(params: "Params") -> None:
    """Check that the method plays the pipeline."""
    pipeline, train = params.pipeline, params.train
    if train.foreign or pipeline.foreign:
        return
    if pipeline.methods and train.method not in pipeline.methods:
        raise ValueError(
            f"pipeline {pipeline.name} and train.method {train.method}: pipeline {pipeline.name} goes with method "
            f"{either(pipeline.methods)} only; set both or neither"
        )
    if train.plays and pipeline.name not in train.plays:
        raise ValueError(
            f"train.method {train.method} plays {either(train.plays)}, not {pipeline.name}; set pipeline.name"
        )
    if train.one_text and getattr(pipeline, "shows", "passages") != "passages":
        raise ValueError(f"train.method {train.method} trains on one growing text; set pipeline.shows: passages")


def validation_has_questions(params: "Params") -> None:
    """Check that there are questions to play if training is validated."""
    if params.train.validation.every and not params.download.validates:
        raise ValueError(
            f"train.validation.every {params.train.validation.every} plays validation questions, and there are none; set "
            "download.validation_questions"
        )


def language_model_can_learn(params: "Params") -> None:
    """Check that a language model that learns has its weights here."""
    train, generator = params.train, params.generator
    if train.learns != LANGUAGE_MODEL:
        return
    if not generator.trainable:
        raise ValueError(
            f"train.method {train.method} trains the language model; generator.kind is {generator.kind}: use "
            + either([tag(kind, "kind") for kind in members(GeneratorParams) if kind.trainable])
        )


def arms_go_with_the_method(params: "Params") -> None:
    """Check that the compared arms exist after such a training."""
    train, evaluate, kind = params.train, params.evaluate, params.generator.kind
    fitting = [name for name in train.arms if params.generator.taught or not ARMS[name].taught]
    ours = [name for name in evaluate.arm_table if name in ARMS]
    if unknown := sorted(set(ours) - set(fitting)):
        raise ValueError(
            f"evaluate.arms {unknown[0]} does not go with train.method {train.method} and generator.kind {kind}; "
            f"choose from {', '.join(fitting)}"
        )
    inside = [name for name, arm in evaluate.arm_table.items() if arm.inside]
    if inside and TRAINED not in evaluate.arm_table:
        raise ValueError(f"the training of the arm trained makes the arm {inside[0]}; add trained to evaluate.arms")
    if absent := [name for name in inside if evaluate.arm_table[name].inside not in (".", *train.leaves)]:
        raise ValueError(
            f"the training of the arm trained makes the arm {absent[0]}, and train.{absent[0]} is 0; set it, or leave "
            "the arm out"
        )
    players = [name for name, arm in evaluate.arm_table.items() if arm.player]
    if players and (train.learns != LANGUAGE_MODEL or train.prefers):
        raise ValueError(f"the arm {players[0]} plays a language model that learns to answer; leave it out")
    foreign = [name for name, arm in evaluate.arm_table.items() if name not in ARMS and arm.method]
    if foreign and (train.learns == LANGUAGE_MODEL or train.positions or getattr(train, "group_size", 2) < 2):
        raise ValueError(
            f"the arm {foreign[0]} trains a retriever by rollouts that it compares, as train.method grpo or ppo does, with "
            "train.group_size above 1; set both so, or leave the arm out"
        )
    linked = [f"the arm {name}" for name, arm in evaluate.arm_table.items() if arm.needs_links]
    if linked and not params.retriever.link_features:
        raise ValueError(
            f"{linked[0]} learns by the features of retriever.link_features, which is not set; set that, or leave it out"
        )
    if evaluate.pass_at and train.learns == LANGUAGE_MODEL:
        raise ValueError(f"evaluate.pass_at samples a retriever; leave it out for train.method {train.method}")
    if evaluate.reader and not params.pipeline.read_later:
        raise ValueError(
            f"evaluate.reader is for train.method {methods(prefers=True)}, whose pipeline does not answer; leave it out"
        )


def the_arm_that_is_asked_is_played(params: "Params") -> None:
    """Check that the arm that the gate asks is played."""
    asked, arms = params.tracking.baseline, params.evaluate.arm_table
    if asked and asked not in arms:
        raise ValueError(f"tracking.baseline {asked} is not in evaluate.arms ({', '.join(arms)}); add it there")


def queries_are_there_to_rewrite(params: "Params") -> None:
    """Check that arms that rewrite queries have queries to rewrite, and an oracle resolved ones."""
    pipeline, generator = params.pipeline, params.generator
    rewriting = {name: arm for name, arm in params.evaluate.arm_table.items() if arm.query}
    if not rewriting or pipeline.foreign:
        return
    if not pipeline.writes_queries:
        raise ValueError(
            f"evaluate.arms {min(rewriting)} rewrites queries, and pipeline {pipeline.name} searches for the question "
            "alone; leave it out"
        )
    oracles = [name for name, arm in rewriting.items() if arm.ceiling]
    if oracles and not (pipeline.resolves and generator.resolves):
        raise ValueError(
            f"evaluate.arms {min(oracles)} needs queries whose pronouns are resolved, which pipeline {pipeline.name} "
            f"with generator {generator.kind} does not give; leave it out"
        )


def thoughts_are_there_to_read(params: "Params") -> None:
    """Check that a state shows thoughts only if a pipeline writes them and a retriever reads states."""
    pipeline, train, table = params.pipeline, params.train, params.evaluate.arm_table
    reads = params.retriever.state == "thought"
    arms = [f"evaluate.arms {name}" for name, arm in table.items() if arm.overrides.get("state") == "thought"]
    what, remedy = (
        ("retriever.state thought", "set json or lines") if reads else (min(arms, default=""), "leave it out")
    )
    if what and not (pipeline.thinks or pipeline.foreign):
        raise ValueError(
            f"{what} tells what the agent wrote before a search, and pipeline {pipeline.name} writes nothing there; "
            f"{remedy}"
        )
    if reads and train.learns == LANGUAGE_MODEL:
        raise ValueError(
            f"retriever.state thought is for a retriever that learns: with train.method {train.method} all search for "
            "the query alone; leave it out"
        )
    if reads and "history" in table:
        raise ValueError(
            "evaluate.arms history reads the finished hops, which retriever.state thought leaves out; name the arm "
            "thought in its place"
        )


def filter_plays_as_training_does(params: "Params") -> None:
    """Check that the filter tries queries if queries are learnt, and whole rollouts otherwise."""
    train, section = params.train, params.filter
    if train.prefers and (unread := {"keep", "group_size"} & section.model_fields_set):
        raise ValueError(f"train.method {train.method} does not read filter.{min(unread)}; see filter.preferences")
    if section.preferences and not train.prefers:
        raise ValueError(f"filter.preferences is for train.method {methods(prefers=True)}; leave it out")


def groups_can_be_mixed(params: "Params") -> None:
    """Check that rewards are mixed only if a group's rollouts are compared, and only for whole episodes."""
    mix, train = params.reward.mix, params.train
    if (mix != "weighted" or params.reward.filter_by_mean) and not train.compares_groups:
        what = "reward.filter_by_mean" if mix == "weighted" else f"reward.mix {mix}"
        raise ValueError(
            f"{what} compares the rollouts of a group, which {train.method} does not; use train.method "
            + methods(compares_groups=True, learns=train.learns)
        )
    if mix != "weighted" and getattr(train, "credit", "episode") == "step":
        raise ValueError(f"reward.mix {mix} mixes rewards of whole episodes; set train.credit: episode")
    if mix == "weighted" and (scale := getattr(train, "scale", "group")) != "group":
        raise ValueError(
            f"train.scale {scale} has no effect with reward.mix weighted, which divides every term by its group's "
            "standard deviation; set reward.mix: sum"
        )


def a_chat_template_can_be_read(params: "Params") -> None:
    """Check that the chat template of a growing text can be read here."""
    pipeline, generator = params.pipeline, params.generator
    if getattr(pipeline, "template", "") != "chat" or pipeline.read_later:
        return
    if not (generator.templated or bool(getattr(generator, "tokenizer", None))):
        remedy = "set generator.tokenizer" if generator.kind == "server" else "use generator.kind local"
        raise ValueError(
            f"pipeline.template chat writes in the chat template of the model, and generator {generator.kind} has none "
            f"here; {remedy}, or set plain"
        )


RULES: tuple[Callable[["Params"], None], ...] = (
    generator_is_needed,
    traces_are_of_the_pipeline,
    readings_are_for_a_reader,
    a_state_has_one_query,
    *RETRIEVER_RULES,
    sources_are_asked,
    method_plays_the_pipeline,
    language_model_can_learn,
    validation_has_questions,
    arms_go_with_the_method,
    the_arm_that_is_asked_is_played,
    queries_are_there_to_rewrite,
    thoughts_are_there_to_read,
    filter_plays_as_training_does,
    groups_can_be_mixed,
    a_chat_template_can_be_read,
)
"""All rules, in the order in which they are checked."""
