"""Sentences of the fictional world that state no fact: how a passage opens and how it ends."""

INTROS = {
    "person": (
        "{s} was {article} {occupation} and public speaker.",
        "{s} was an English {occupation}.",
        "{s} was {article} {occupation} of some local fame.",
        "{s} is remembered as {article} {occupation}.",
        "{s} was {article} {occupation} and writer of travel books.",
    ),
    "career": (
        "Later in life {s} was the best known {occupation} of the county.",
        "The working life of {s} is known from letters and diaries.",
        "{s} had a long career as {article} {occupation}.",
        "{s} was a self-taught {occupation}.",
    ),
    "firm": (
        "{s} is a family firm with about three hundred workers.",
        "{s} is a company known for its careful apprenticeships.",
        "{s} is an English company with customers in many countries.",
        "{s} is one of the smaller listed companies in the country.",
    ),
    "town": (
        "{s} is a market town with a weekly fair.",
        "{s} is a small town on an old coaching road.",
        "{s} is an English town with a Norman church.",
        "{s} is a town of some nine thousand people.",
    ),
    "school": (
        "{s} is a day school for about six hundred pupils.",
        "{s} is a school known for its choir.",
        "{s} is a secondary school with a large playing field.",
        "{s} is one of the oldest schools in the county.",
    ),
    "novel": ("{s} is a novel in three parts.", "{s} is a historical novel.", "{s} is a comic novel."),
    "play": ("{s} is a play in two acts.", "{s} is a play for five actors.", "{s} is a verse play."),
    "poem": ("{s} is a long narrative poem.", "{s} is a poem in blank verse.", "{s} is a poem in twelve cantos."),
    "song": ("{s} is a song for voice and piano.", "{s} is a song for tenor.", "{s} is a popular song."),
    "opera": ("{s} is an opera in three acts.", "{s} is a chamber opera.", "{s} is a comic opera."),
    "symphony": ("{s} is a symphony for large orchestra.", "{s} is a choral symphony.", "{s} is a short symphony."),
}
"""By kind of entity, for works by kind of work; ``career`` opens a person's second passage."""

REMARKS = {
    "person": (
        "A short memoir was found among family papers many years later.",
        "Contemporaries praised a dry sense of humour and a love of long walks.",
        "A portrait hangs in the county museum, next to a collection of medals.",
        "Much of the correspondence was lost in a fire.",
        "Two biographies disagree about nearly everything else.",
        "A memorial lecture is still given every second spring.",
        "An early interest in music never quite faded.",
        "The obituary in the local paper ran to three columns.",
    ),
    "firm": (
        "The company survived two recessions and a flood.",
        "Its yearly outing to the coast was famous among the staff.",
        "Orders from abroad doubled within a decade.",
        "The old catalogue is now sought after by collectors.",
        "A strike over working hours was settled within a week.",
        "Visitors may tour the workshops on the first Sunday of the month.",
    ),
    "town": (
        "A stone bridge and a row of almshouses are the chief sights.",
        "The railway arrived late and left early.",
        "A brass band competition is held every June.",
        "The library keeps a large collection of old maps.",
        "Floods damaged the lower streets more than once.",
        "Its cheese won several prizes at the county show.",
    ),
    "work": (
        "Early reviews were mixed, later ones warm.",
        "A revised version appeared some years afterwards.",
        "The manuscript was sold at auction to a private collector.",
        "It has been translated into nine languages.",
        "Critics have often pointed to its quiet ending.",
        "A radio adaptation made it widely known.",
    ),
    "school": (
        "A new library was added after a public appeal.",
        "Its rowing club has won several regional cups.",
        "The main building has a clock tower and a walled garden.",
        "A yearly concert draws former pupils from far away.",
    ),
}
