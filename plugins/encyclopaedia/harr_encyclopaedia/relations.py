"""The relations of the fictional world and their wordings (see ``grammar.py``)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """A link from an entity of kind ``domain`` to one of kind ``range`` (or to a year), and its wordings."""

    name: str
    domain: str
    range: str
    questions: tuple[str, ...]
    pronouns: tuple[str, ...]
    nouns: tuple[str, ...]
    facts: tuple[str, ...]
    echoes: tuple[str, ...]


_ROWS = (
    Relation(
        "birthplace",
        "person",
        "town",
        questions=("Where was {} born?", "In which town was {} born?", "What was the birthplace of {}?"),
        pronouns=("Where was {they} born?", "In which town was {they} born?", "What was {their} birthplace?"),
        nouns=("the birthplace of {}", "the town where {} was born"),
        facts=("{s} was born in {o}.", "The birthplace of {s} was {o}.", "{s} was born and brought up in {o}."),
        echoes=("{They} was born in {o}.", "{Their} birthplace was {o}.", "{They} was born and brought up in {o}."),
    ),
    Relation(
        "birth_year",
        "person",
        "year",
        questions=("When was {} born?", "In which year was {} born?", "What was the year of birth of {}?"),
        pronouns=("When was {they} born?", "In which year was {they} born?"),
        nouns=("the year of birth of {}",),
        facts=("{s} was born in {o}.", "The birth of {s} was registered in {o}."),
        echoes=("{They} was born in {o}.", "{Their} year of birth was {o}."),
    ),
    Relation(
        "mother",
        "person",
        "person",
        questions=("Who was the mother of {}?", "Who was {}'s mother?", "What was the name of the mother of {}?"),
        pronouns=("Who was {their} mother?", "What was the name of {their} mother?"),
        nouns=("the mother of {}", "{}'s mother"),
        facts=("{s}'s mother was {o}.", "The mother of {s} was {o}.", "{s} was raised by {their} mother, {o}."),
        echoes=("{Their} mother was {o}.", "{They} was raised by {their} mother, {o}."),
    ),
    Relation(
        "father",
        "person",
        "person",
        questions=("Who was the father of {}?", "Who was {}'s father?", "What was the name of the father of {}?"),
        pronouns=("Who was {their} father?", "What was the name of {their} father?"),
        nouns=("the father of {}", "{}'s father"),
        facts=("{s}'s father was {o}.", "The father of {s} was {o}.", "{s} learned to read from {their} father, {o}."),
        echoes=("{Their} father was {o}.", "{They} learned to read from {their} father, {o}."),
    ),
    Relation(
        "employer",
        "person",
        "firm",
        questions=("Which firm employed {}?", "Which firm did {} work for?", "Who was the employer of {}?"),
        pronouns=("Which firm employed {them}?", "Which firm did {they} work for?", "Who was {their} employer?"),
        nouns=("the firm that employed {}", "the employer of {}", "the firm that {} worked for"),
        facts=("{s} worked for {o}.", "{s} was employed by {o}.", "{s} spent most of {their} career at {o}."),
        echoes=("{They} worked for {o}.", "{Their} employer was {o}.", "{They} spent most of {their} career at {o}."),
    ),
    Relation(
        "school",
        "person",
        "school",
        questions=("Which school did {} attend?", "At which school was {} educated?", "What was the school of {}?"),
        pronouns=("Which school did {they} attend?", "At which school was {they} educated?"),
        nouns=("the school attended by {}", "the school that {} attended"),
        facts=("{s} was educated at {o}.", "{s} attended {o}.", "The school of {s} was {o}."),
        echoes=("{They} was educated at {o}.", "{They} attended {o}.", "{Their} school was {o}."),
    ),
    Relation(
        "founder",
        "firm",
        "person",
        questions=("Who founded {}?", "Who was the founder of {}?", "By whom was {} founded?"),
        pronouns=("Who founded {them}?", "Who was {their} founder?", "By whom was {they} founded?"),
        nouns=("the founder of {}", "{}'s founder"),
        facts=("{s} was founded by {o}.", "The founder of {s} was {o}.", "{o} founded {s}."),
        echoes=("{They} was founded by {o}.", "{Their} founder was {o}."),
    ),
    Relation(
        "headquarters",
        "firm",
        "town",
        questions=("Where is {} based?", "In which town is {} based?", "What is the home town of {}?"),
        pronouns=(
            "Where is {they} based?",
            "In which town is {they} based?",
            "What is {their} home town?",
        ),
        nouns=("the home town of {}", "the town where {} is based"),
        facts=("{s} is based in {o}.", "The home town of {s} is {o}."),
        echoes=("{They} is based in {o}.", "{Their} home town is {o}."),
    ),
    Relation(
        "director",
        "firm",
        "person",
        questions=("Who manages {}?", "Who is the managing director of {}?"),
        pronouns=("Who manages {them}?", "Who is {their} managing director?"),
        nouns=("the managing director of {}", "the manager of {}"),
        facts=("{s} is managed by {o}.", "The managing director of {s} is {o}.", "{o} manages {s}."),
        echoes=("{They} is managed by {o}.", "{Their} managing director is {o}."),
    ),
    Relation(
        "opening_year",
        "firm",
        "year",
        questions=(
            "When did {} open for business?",
            "In which year did {} start trading?",
            "What was the first year of {}?",
        ),
        pronouns=("When did {they} open for business?", "In which year did {they} start trading?"),
        nouns=("the first year of {}",),
        facts=("{s} opened for business in {o}.", "{s} started trading in {o}."),
        echoes=("{They} opened for business in {o}.", "{They} started trading in {o}."),
    ),
    Relation(
        "mayor",
        "town",
        "person",
        questions=("Who is the mayor of {}?", "Who serves as mayor of {}?"),
        pronouns=("Who is {their} mayor?", "Who serves as {their} mayor?"),
        nouns=("the mayor of {}", "{}'s mayor"),
        facts=("The mayor of {s} is {o}.", "{o} is the mayor of {s}.", "{o} serves as mayor of {s}."),
        echoes=("{Their} mayor is {o}.", "{o} serves as {their} mayor."),
    ),
    Relation(
        "twin",
        "town",
        "town",
        questions=("Which town is twinned with {}?", "What is the twin town of {}?"),
        pronouns=("Which town is twinned with {them}?", "What is {their} twin town?"),
        nouns=("the twin town of {}", "the town twinned with {}"),
        facts=("{s} is twinned with {o}.", "The twin town of {s} is {o}."),
        echoes=("{They} is twinned with {o}.", "{Their} twin town is {o}."),
    ),
    Relation(
        "industry",
        "town",
        "firm",
        questions=("What is the largest employer in {}?", "Which firm is the largest in {}?"),
        pronouns=("What is {their} largest employer?", "Which firm is the largest there?"),
        nouns=("the largest employer in {}", "the largest firm in {}"),
        facts=("The largest employer in {s} is {o}.", "{o} is the largest firm in {s}."),
        echoes=("{Their} largest employer is {o}.", "{o} is {their} largest employer."),
    ),
    Relation(
        "author",
        "work",
        "person",
        questions=("Who wrote {}?", "Who was the author of {}?", "By whom was {} written?"),
        pronouns=("Who wrote {them}?", "Who was {their} author?", "By whom was {they} written?"),
        nouns=("the author of {}", "the writer of {}"),
        facts=("{s} was written by {o}.", "The author of {s} was {o}.", "{o} wrote {s}."),
        echoes=("{They} was written by {o}.", "{Their} author was {o}."),
    ),
    Relation(
        "composer",
        "work",
        "person",
        questions=("Who composed {}?", "Who was the composer of {}?", "By whom was {} composed?"),
        pronouns=("Who composed {them}?", "Who was {their} composer?", "By whom was {they} composed?"),
        nouns=("the composer of {}", "{}'s composer"),
        facts=("{s} was composed by {o}.", "The composer of {s} was {o}.", "{o} composed {s}."),
        echoes=("{They} was composed by {o}.", "{Their} composer was {o}."),
    ),
    Relation(
        "publisher",
        "work",
        "firm",
        questions=("Which firm published {}?", "Who was the publisher of {}?", "By which firm was {} published?"),
        pronouns=("Which firm published {them}?", "Who was {their} publisher?", "By which firm was {they} published?"),
        nouns=("the publisher of {}", "the firm that published {}"),
        facts=("{s} was published by {o}.", "The publisher of {s} was {o}.", "{o} published {s}."),
        echoes=("{They} was published by {o}.", "{Their} publisher was {o}."),
    ),
    Relation(
        "setting",
        "work",
        "town",
        questions=("In which town is {} set?", "Where is {} set?", "What is the setting of {}?"),
        pronouns=("In which town is {they} set?", "Where is {they} set?", "What is {their} setting?"),
        nouns=("the town where {} is set", "the setting of {}"),
        facts=("{s} is set in {o}.", "The setting of {s} is {o}."),
        echoes=("{They} is set in {o}.", "{Their} setting is {o}."),
    ),
    Relation(
        "premiere",
        "work",
        "town",
        questions=("Where was {} first performed?", "What was the place of the first performance of {}?"),
        pronouns=("Where was {they} first performed?", "What was the place of {their} first performance?"),
        nouns=("the town where {} was first performed", "the place of the first performance of {}"),
        facts=("{s} was first performed in {o}.", "The first performance of {s} took place in {o}."),
        echoes=("{They} was first performed in {o}.", "{Their} first performance took place in {o}."),
    ),
    Relation(
        "head",
        "school",
        "person",
        questions=("Who is the head teacher of {}?", "Who leads {}?"),
        pronouns=("Who is {their} head teacher?", "Who leads {them}?"),
        nouns=("the head teacher of {}", "the leader of {}"),
        facts=("The head teacher of {s} is {o}.", "{s} is led by {o}."),
        echoes=("{Their} head teacher is {o}.", "{They} is led by {o}."),
    ),
    Relation(
        "location",
        "school",
        "town",
        questions=("Where does {} stand?", "In which town does {} stand?", "What is the location of {}?"),
        pronouns=("Where does {they} stand?", "In which town does {they} stand?", "What is {their} location?"),
        nouns=("the town where {} stands", "the location of {}"),
        facts=("{s} stands in {o}.", "The location of {s} is {o}."),
        echoes=("{They} stands in {o}.", "{Their} location is {o}."),
    ),
)

RELATIONS = {relation.name: relation for relation in _ROWS}
"""All relations by name, grouped by kind of entity."""

SOURCES = {"person": "General", "town": "General", "firm": "News", "work": "Academy", "school": "Academy"}
"""Source of the passages about each kind of entity, for pipelines that choose a tool for each search."""
