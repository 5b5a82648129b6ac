"""English names for fictional worlds: word lists, and draws of distinct names from them.

Given names, surnames and compound place names are real, because sentence encoders confuse invented syllables. A name is
a tuple of word numbers, so a million names are a few integer arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEMALE = tuple(
    """Ada Agnes Alice Amelia Anna Audrey Barbara Beatrice Bertha Bridget Caroline Catherine Cecilia Charlotte Clara
    Constance Cora Daphne Deborah Diana Dorothy Edith Eleanor Eliza Elizabeth Ella Emily Emma Esther Ethel Eva Evelyn
    Fanny Flora Florence Frances Freda Georgina Gertrude Gloria Grace Hannah Harriet Hazel Helen Henrietta Hilda Ida
    Irene Isabel Ivy Jane Janet Jessica Joan Josephine Judith Julia Katharine Laura Lavinia Lillian Louisa Lucy Lydia
    Mabel Margaret Marian Martha Mary Matilda Maud Mildred Millicent Miriam Molly Nancy Nora Olive Pamela Patricia
    Pauline Penelope Phoebe Priscilla Rachel Rebecca Rosalind Rose Ruth Sarah Sophia Stella Susan Sylvia Theresa Ursula
    Victoria Violet Winifred""".split()
)
MALE = tuple(
    """Adam Albert Alexander Alfred Andrew Anthony Archibald Arnold Arthur Augustus Barnaby Benjamin Bernard Cecil
    Charles Christopher Clement Clifford Cyril Daniel David Dennis Desmond Donald Douglas Duncan Edgar Edmund Edward
    Edwin Eric Ernest Felix Francis Frank Frederick Geoffrey George Gerald Gilbert Gordon Graham Gregory Harold Harry
    Hector Henry Herbert Horace Hubert Hugh Humphrey Isaac Jack Jacob James Jasper Jeremy John Jonathan Joseph Joshua
    Julian Kenneth Laurence Leonard Lewis Lionel Luke Malcolm Mark Martin Matthew Maurice Michael Miles Nathaniel
    Nicholas Nigel Oliver Oscar Oswald Patrick Percy Peter Philip Ralph Raymond Reginald Richard Robert Roderick Roger
    Roland Rupert Samuel Simon Stanley Stephen Theodore Thomas Timothy Victor Vincent Walter Wilfred William""".split()
)
GIVEN = FEMALE + MALE
NEAR_SURNAMES = dict(
    pair.split("/")
    for pair in """Allen/Allan Bailey/Bayley Baldwin/Baldwyn Barrat/Barratt Bennet/Bennett Bird/Byrd Brook/Brooke
    Brown/Browne Burnet/Burnett Carlisle/Carlyle Clark/Clarke Coates/Coats Cook/Cooke Cooper/Cowper Davis/Davies
    Dickens/Dickins Elliot/Elliott Farrar/Farrer Field/Fields Ford/Forde Gardner/Gardiner Garret/Garrett Gilbey/Gilby
    Goddard/Godard Gray/Grey Green/Greene Hart/Harte Hawks/Hawkes Hewitt/Hewett Hoar/Hoare Holme/Holmes
    Jarvis/Jervis Jeffreys/Jeffries Johnson/Johnston Lawson/Lawton Leigh/Leighton Lowell/Lovell Marsh/March
    Marshall/Marshal Matthews/Mathews Meredith/Meridith Moore/Moor Neal/Neale Nichols/Nicholls Osborn/Osborne
    Page/Paige Parson/Parsons Pearce/Pierce Philips/Phillips Price/Pryce Read/Reade Robins/Robbins Rogers/Rodgers
    Sanders/Saunders Shepherd/Sheppard Simmons/Symons Smith/Smyth Stephens/Stevens Stewart/Stuart Summers/Somers
    Symes/Syms Taylor/Tayler Thompson/Thomson Tindal/Tindall Walker/Waller Waters/Walters Webb/Webber White/Whyte
    Whitfield/Whitefield Wild/Wilde Winter/Winters Wood/Woods Wyatt/Wyett""".split()
)
"""Surnames, with the spelling of a near-name distractor, which occurs nowhere else."""
SURNAMES = tuple(NEAR_SURNAMES) + tuple(
    """Abbot Acland Adams Ainsley Aldridge Ambrose Appleby Archer Armitage Arnold Ashby Atkins Atwood Austin Aylward
    Bagshaw Bancroft Banks Barker Barlow Barnes Barton Bates Baxter Beaumont Beckett Bellamy Benson Beresford Bishop
    Blackwell Blake Bolton Booth Boswell Bowen Bradley Bradshaw Bramwell Brewer Briggs Bristow Buckley Bullock Burgess
    Burton Butler Byron Calvert Cameron Campbell Cannon Carpenter Carter Cartwright Chadwick Chambers Chandler Chapman
    Church Clayton Clifton Cobb Coleman Collins Compton Conway Corbett Cotton Crane Crawford Crosby Cunningham Curtis
    Dalton Dawson Denham Devlin Dixon Doyle Drake Draper Drummond Dudley Duffield Dunn Dyson Eastman Eaton Edgeworth
    Ellis Emerson Everett Fairfax Farmer Fenton Ferguson Finch Fisher Fletcher Foster Fowler Fox Franklin Fraser
    Freeman Frost Fuller Gage Galloway Gibbons Gibson Gilmore Glover Godwin Goodman Granger Grant Griffin Grimshaw
    Hackett Haddon Halden Hall Hamilton Hammond Harding Hargreaves Harper Harris Harvey Hastings Hawthorne Hayward
    Henderson Herrick Hicks Higgins Hobbs Hodgson Holland Holloway Hooper Hopkins Horton Howard Hudson Hughes Humphreys
    Hunter Hurst Hutton Ingram Irving Jackson Jennings Jordan Keating Keller Kemp Kendall Kennedy Kent King Kirby Knight
    Knowles Lacey Lamb Lambert Lancaster Langley Larkin Latham Lester Lincoln Lindsay Lister Locke Lockwood Logan Lucas
    Lyons Maddox Mallory Manning Mansfield Marlowe Mason Maxwell Mercer Merton Middleton Miller Mitchell Montague Morgan
    Morris Morton Murray Nash Nelson Newman Newton Norris North Norton Oakley Palmer Parker Parrish Paxton Peck
    Pemberton Perkins Perry Pickering Pitt Porter Potter Powell Pratt Preston Quincy Radcliffe Ramsey Randall Redmond
    Reeves Reynolds Rhodes Richmond Riley Roberts Robinson Rowland Russell Ryder Salter Sampson Sawyer Saxton Scott
    Seymour Sharp Shaw Shelton Sherwood Sinclair Skinner Slater Spencer Stafford Stanton Stokes Stone Sutton Swift
    Talbot Tate Temple Thorne Thornton Thorpe Tilney Townsend Tucker Turner Tyler Underhill Vaughan Vernon Wakefield
    Wallace Walsh Ward Warner Warwick Watkins Watson Webster Wells Wentworth Weston Wheeler Whitaker Wilkins Willis
    Wilson Winslow Woodward Worth Wright Yates York""".split()
)
SPELLINGS = SURNAMES + tuple(NEAR_SURNAMES.values())
MIDDLES = ("", *(f"{letter}. " for letter in "ABCDEFGHJKLMNPRSTW"), *(f"{name} " for name in SURNAMES))
PROFESSIONS = tuple(
    """chemist painter architect engineer surgeon botanist historian sculptor journalist astronomer lawyer geologist
    pianist economist explorer photographer mathematician dancer translator zoologist cellist archaeologist poet
    physicist violinist gardener banker cartographer magistrate printer""".split()
)

ROOTS = tuple(
    """Ash Oak Elm Thorn Hazel Alder Birch Maple Haw Willow Rush Fern Heather Bram Clover Barley Wheat Rye Oat Hay
    Lamb Ox Hart Buck Swan Crow Hawk Raven Otter Badger Stone Chalk Flint Clay Sand Marl Slate Iron Silver Gold
    White Black Red Green Brown North South East West Mid High Long Broad Deep Clear Cold Winter Summer King Queen
    Bishop Abbot Monk Earl Knight Mill Castle Church Bridge Market Wood Moor Fen Marsh Lake Spring Brook Wind""".split()
)
ENDINGS = tuple(
    """ford bury ton ham stead well wick worth dale field hurst leigh mouth combe minster mere cliff haven borough
    gate brook bourne wold thwaite stow""".split()
)
NEAR_ENDINGS = {
    "ford": "fort", "bury": "berry", "ton": "don", "ham": "holm", "well": "wall", "wick": "wyke", "worth": "north",
    "dale": "vale", "leigh": "ley", "mouth": "mount", "gate": "gat", "stow": "stowe", "bourne": "burn", "wold": "wood",
}  # fmt: skip
TOWN_ENDINGS = ENDINGS + tuple(NEAR_ENDINGS.values())
_COMPASS = """Upper Lower Great Little New Old North South East West Nether Long Market Castle Abbots Bishops Kings
    Queens Temple Stoke""".split()
_RIVERS = """Arrow Avon Brent Calder Dane Dart Derwent Don Eden Esk Exe Frome Itchen Kennet Lea Lune Medway Mersey Nene
    Ouse Ribble Rother Severn Soar Stour Swale Tamar Tees Test Thames Trent Tweed Tyne Ure Wear Welland Wharfe
    Witham Wye Yare""".split()
PLACES = (
    ("", ""),
    *((f"{word} ", "") for word in _COMPASS),
    *(("", f" on {river}") for river in _RIVERS),
    *((f"{word} ", f" on {river}") for word in _COMPASS for river in _RIVERS),
)

_TRADES = """Instruments Shipping Textiles Motors Brewery Chemicals Foundry Printworks Railways Insurance Tobacco
    Bicycles Pottery Glassworks Engineering Mills Optics Bearings Timber Confectionery Tools Paper Cables Pianos
    Clocks Boilers Ceramics Furniture Watches Locomotives Fabrics Steelworks Carpets Pumps Radio Aviation Breweries
    Publishing Distillery Quarries Tractors Shipyards Hosiery Cutlery Dyes Biscuits Turbines Scales Lamps
    Stores""".split()
FIRMS = (
    *(tail for trade, name in zip(_TRADES, SURNAMES[::6], strict=False) for tail in (f" {trade}", f" & {name}")),
    *(f" & {name} {trade}" for trade in _TRADES for name in SURNAMES),
)

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """How names of one kind of entity are made of three words.

    Args:
        first: number of words for the first part.
        second: number of words for the second part.
        variants: for each word of the second part, the number of its near spelling, or -1.
        least: number of words for the third part in a small world.
        most: number of words for the third part in a large world.
        spell: function from three word numbers to the name.
    """

    first: int
    second: int
    variants: Index
    least: int
    most: int
    spell: Callable[[int, int, int], str]


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one kind of entity: ``columns`` are the word numbers of each part, one row per entity.

    ``twin`` is the entity whose exact name this one shares, or -1.
    """

    kind: Kind
    columns: tuple[Index, Index, Index]
    twin: Index

    def __len__(self) -> int:
        return len(self.twin)

    def __getitem__(self, row: int) -> str:
        """Return the plain name, without a qualifier."""
        first, second, third = self.columns
        return self.kind.spell(first.item(row), second.item(row), third.item(row))


def _near(words: Sequence[str], near: dict[str, str]) -> Index:
    """Return, for each word, the number of its near spelling in ``words + near.values()``, or -1."""
    position = {word: len(words) + place for place, word in enumerate(near)}
    return np.array([position.get(word, -1) for word in words], dtype=np.int64)


def _spell_town(first: int, second: int, third: int) -> str:
    before, after = PLACES[third]
    return f"{before}{ROOTS[first]}{TOWN_ENDINGS[second]}{after}"


NEAR_SPELLINGS = _near(SURNAMES, NEAR_SURNAMES)
"""For each surname, the number of its near spelling in ``SPELLINGS``, or -1."""
PERSON = Kind(
    len(GIVEN),
    len(SURNAMES),
    NEAR_SPELLINGS,
    1,
    len(MIDDLES),
    lambda first, second, third: f"{GIVEN[first]} {MIDDLES[third]}{SPELLINGS[second]}",
)
TOWN = Kind(len(ROOTS), len(ENDINGS), _near(ENDINGS, NEAR_ENDINGS), 1, len(PLACES), _spell_town)
FIRM = Kind(
    1,
    len(SURNAMES),
    NEAR_SPELLINGS,
    2 * len(_TRADES),
    len(FIRMS),
    lambda first, second, third: f"{SPELLINGS[second]}{FIRMS[third]}",
)


def draw_names(kind: Kind, count: int, rng: np.random.Generator, *, near: float = 0.0, same: float = 0.0) -> Names:
    """Draw ``count`` names of ``kind``, distinct except for deliberate namesakes.

    ``near`` and ``same`` are the shares of entities that take another entity's name in a near spelling (Brown, Browne)
    or exactly. Large worlds use more middle names, prefixes and endings.

    >>> names = draw_names(TOWN, 3, np.random.default_rng(0))
    >>> len({names[row] for row in range(3)})
    3
    """
    first, second, variants = kind.first, kind.second, kind.variants
    third = min(kind.most, max(kind.least, -(-2 * count // (first * second))))
    codes = rng.permutation(first * second * third)[:count]
    one, two, three = (np.asarray(column, dtype=np.int64) for column in np.unravel_index(codes, (first, second, third)))
    columns = one, two, three
    twin = np.full(count, -1, dtype=np.int64)
    order = rng.permutation(count)
    has_variant = variants[columns[1][order]] >= 0
    models, others = order[has_variant], order[~has_variant]
    pairs = min(int(near * count), len(models), len(others) // 2)
    models, takers, others = models[:pairs], others[:pairs], others[pairs:]
    for column in columns:
        column[takers] = column[models]
    columns[1][takers] = variants[columns[1][models]]
    pairs = min(int(same * count), len(others) // 2)
    models, takers = others[:pairs], others[pairs : 2 * pairs]
    for column in columns:
        column[takers] = column[models]
    twin[takers], twin[models] = models, takers
    return Names(kind, columns, twin)
