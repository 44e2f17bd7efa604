"""The licences of published sets, in their own words."""

from collections.abc import Mapping

IN_UCI_S_LIST = "The UCI repository lists the set under CC BY 4.0."
"""The licence by what public projects, independent of each other, say of its pages; no machine of
this project could ask it. The sets of July 2015 and of November 2012 say otherwise themselves, so
both are quoted."""

LICENCE_OF_HAPT = (
    f'{IN_UCI_S_LIST} README.txt of the set: "Use of this dataset in publications must be'
    " acknowledged by referencing the following publications - Jorge-L. Reyes-Ortiz, Luca Oneto,"
    " Albert Samà, Xavier Parra, Davide Anguita. Transition-Aware Human Activity Recognition Using"
    " Smartphones. Neurocomputing. Springer 2015. This dataset is distributed AS-IS and no"
    " responsibility implied or explicit can be addressed to the authors or their institutions for"
    ' its use or misuse. Any commercial use is prohibited."'
)
"""The licence of the HAPT set of July 2015."""

LICENCE_OF_UCI_HAR = (
    f'{IN_UCI_S_LIST} README.txt of the set: "Use of this dataset in publications must be'
    " acknowledged by referencing the following publication [1]. [1] Davide Anguita, Alessandro"
    " Ghio, Luca Oneto, Xavier Parra and Jorge L. Reyes-Ortiz. Human Activity Recognition on"
    " Smartphones using a Multiclass Hardware-Friendly Support Vector Machine. International"
    " Workshop of Ambient Assisted Living (IWAAL 2012). Vitoria-Gasteiz, Spain. Dec 2012. This"
    " dataset is distributed AS-IS and no responsibility implied or explicit can be addressed to"
    ' the authors or their institutions for its use or misuse. Any commercial use is prohibited."'
)
"""The licence of the classic set of November 2012, by public copies of its README.txt."""

LICENCE_OF_HHAR = f"{IN_UCI_S_LIST} Its own readme.txt names none."
"""The licence of the HHAR set of 2015."""


LICENCES: Mapping[str, str] = {
    "hapt": LICENCE_OF_HAPT,
    "uci-har": LICENCE_OF_UCI_HAR,
    "hhar": LICENCE_OF_HHAR,
}
"""Licences by kind of recordings; nothing is known of others."""
