"""English names of works and schools: word lists, and how names are made from them."""

import numpy as np
from harr_people.names import FEMALE, MALE, NEAR_SPELLINGS, SPELLINGS, SURNAMES, Kind

ADJECTIVES = tuple(
    """Silent Broken Crimson Distant Hidden Burning Frozen Golden Hollow Lonely Painted Quiet Restless Scarlet Shining
    Sleeping Secret Silver Stolen Velvet Wandering Weary Whispering Wooden Bitter Blue Bright Copper Crooked Empty
    Faithful Forgotten Gentle Glass Haunted Ivory Jealous Marble Midnight Narrow Patient Perfect Pale Proud Reluctant
    Rising Sacred Second Shadowed Simple Solemn Sunken Tender Tidal Twisted Unfinished Vanishing Wicked Winding
    Wounded""".split()
)
NOUNS = tuple(
    """Harbour Garden Orchard Lantern Mirror River Bridge Island Window Tower Valley Meadow Clockmaker Captain Widow
    Stranger Shepherd Sailor Gardener Violin Letter Candle Carriage Cathedral Chapel Cottage Crown Dancer Door Falcon
    Feather Fiddler Fountain Gate Guest Heart Heron Horizon Hour House Journey Juggler Kingdom Ladder Lighthouse Map
    Mountain Nightingale Ocean Palace Piper Promise Road Room Rose Season Ship Shore Sparrow Staircase Statue Storm
    Summer Swallow Tailor Thief Train Traveller Wedding Weaver Well Willow""".split()
)
_OPENINGS = (
    "The|Beyond the|Behind the|Return to the|Beneath the|Song of the|Farewell to the|Under the|"
    "Shadow of the|Return of the|Tale of the|Waiting for the|Letters from the|Children of the|"
    "Before the|After the|Night of the|Daughters of the|Ballad of the|Remember the"
).split("|")
_CLOSINGS = """|of Winter|of the North|in Spring|of Cornwall|at Dusk|of the Moor|by the Sea|in the Rain|of
    Glass|of Midsummer|at Dawn|of the Fens|in Autumn|of the Isles""".replace("\n    ", " ").split("|")
TITLES = tuple((f"{head} ", f" {tail}".rstrip()) for tail in _CLOSINGS for head in _OPENINGS)
SCHOOL_TYPES = tuple(
    f" {word}"
    for word in """Grammar School|College|Academy|High School|Hall School|Boarding School|Institute|School|Free School|
    Upper School|Technical School|Music School|House School|Abbey School|Commercial School|Manor School""".replace(
        "\n    ", ""
    ).split("|")
)
SCHOOL_PATRONS = ("", *(f"{name} " for pair in zip(FEMALE, MALE, strict=False) for name in pair))


def _spell_work(first: int, second: int, third: int) -> str:
    before, after = TITLES[third]
    return f"{before}{ADJECTIVES[first]} {NOUNS[second]}{after}"


WORK = Kind(len(ADJECTIVES), len(NOUNS), np.full(len(NOUNS), -1), 8, len(TITLES), _spell_work)
SCHOOL = Kind(
    len(SCHOOL_TYPES),
    len(SURNAMES),
    NEAR_SPELLINGS,
    1,
    len(SCHOOL_PATRONS),
    lambda first, second, third: f"{SCHOOL_PATRONS[third]}{SPELLINGS[second]}{SCHOOL_TYPES[first]}",
)
