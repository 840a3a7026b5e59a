"""Where each of the ten tables comes from, on what terms, and how to recognise it."""

from __future__ import annotations

from dataclasses import dataclass

from studies.experiments.data.fetching import DataSource


@dataclass(frozen=True)
class PublishedText:
    """A text file of numbers from which a table follows by moving one column.

    Attributes
    ----------
    address : str
    target : int
        The column of y; the others are the features, in their order.
    delimiter : str or None
        None: spaces.
    header_lines : int
    """

    address: str
    target: int
    delimiter: str | None = None
    header_lines: int = 0


@dataclass(frozen=True)
class Table:
    """A table that :func:`load_tabular` knows.

    Attributes
    ----------
    sha256 : str
        Of names and numbers; see ``sha256_of_table``.
    page : str
        Where a person finds the data.
    recipe : str
        What was done to the published data.
    source : DataSource
    published : PublishedText, optional
    """

    sha256: str
    page: str
    recipe: str
    source: DataSource
    published: PublishedText | None = None


_UCI = "https://archive.ics.uci.edu/"
_UCI_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository)"
_NO_LICENCE = "none stated by the publisher"

TABLES = {
    "bike_kaggle_10886": Table(
        "9d801557dbd672c208120642cf7e84e3e22c3c157e54baa46bdd039e66f69519",
        "https://www.kaggle.com/c/bike-sharing-demand (train.csv)",
        "season and weather as one column of zeros and ones for each value, hour, day (of the "
        "week, Monday is 0), month and year (2011 is 0) from datetime, y from count; casual and "
        "registered left out",
        DataSource(
            "Rented bicycles in Washington, D.C.: y is the number in an hour.",
            "rules of the Kaggle competition; the same records at UCI: CC BY 4.0",
            'H. Fanaee-T, J. Gama (2014), "Event labeling combining ensemble detectors and '
            'background knowledge", Progress in Artificial Intelligence 2, 113. '
            "doi:10.1007/s13748-013-0040-3",
        ),
    ),
    "blog_feedback_6000": Table(
        "31c2da05a1b6d1e81e83b917cb04cf0c2d6edf3b86e803ab221d00b4b7bae85f",
        _UCI + "dataset/304/blogfeedback",
        "6,000 of the 52,397 rows of blogData_train.csv, drawn at random, features x0 to x279, the "
        "published columns, without the 37 that are constant among them; y is the last column",
        DataSource(
            "Blog posts: y is the number of comments in the next 24 hours, two thirds of them 0.",
            _UCI_LICENCE,
            'K. Buza (2014), "Feedback prediction for blogs", Data Analysis, Machine Learning and '
            "Knowledge Discovery, 145. doi:10.1007/978-3-319-01595-8_16; data: doi:10.24432/C58S3F",
        ),
    ),
    "boston_housing": Table(
        "b7b8e025db3178d65726045f7e49f68534c6fa3607b62d922b0b528ce5461e6a",
        "https://lib.stat.cmu.edu/datasets/boston",
        "features x0 to x12, the published columns CRIM to LSTAT; y is MEDV",
        DataSource(
            "Districts of Boston, 1970: y is the median value of a house in 1000 $, cut at 50. "
            "Column x11 rests on the assumption that house prices depend on the share of Black "
            "residents; use this table to compare with published figures, not to study housing.",
            _NO_LICENCE,
            'D. Harrison, D. L. Rubinfeld (1978), "Hedonic housing prices and the demand for '
            'clean air", Journal of Environmental Economics and Management 5, 81. '
            "doi:10.1016/0095-0696(78)90006-2",
        ),
        PublishedText(_UCI + "ml/machine-learning-databases/housing/housing.data", target=-1),
    ),
    "california_housing_20640": Table(
        "8c71517fd2dc6c76e255061bc7a3483992723c581ec18b9126365f49ced72abc",
        "https://raw.githubusercontent.com/ageron/handson-ml/master/datasets/housing/housing.csv",
        "ocean_proximity as one column of zeros and ones for each value, the 207 gaps in "
        "total_bedrooms filled with the median, 435; y is median_house_value",
        DataSource(
            "Districts of California, 1990: y is the median value of a house in $, cut at 500,001.",
            _NO_LICENCE,
            'R. K. Pace, R. Barry (1997), "Sparse spatial autoregressions", Statistics & '
            "Probability Letters 33, 291. doi:10.1016/S0167-7152(96)00140-X",
        ),
    ),
    "communities_crime": Table(
        "e80d0de09112a7cdffed14cb4540cd96a3b06b364e4483ceed16f9d6c14b87ad",
        _UCI + "dataset/183/communities+and+crime",
        "without the 5 columns that identify a community and the 22 with 1675 gaps, the one gap "
        "in OtherPerCap filled with the mean; y is ViolentCrimesPerPop",
        DataSource(
            "Communities of the United States, 1990 to 1995: y is the rate of violent crime, "
            "scaled to 0 … 1.",
            _UCI_LICENCE,
            'M. Redmond, A. Baveja (2002), "A data-driven software tool for enabling cooperative '
            'information sharing among police departments", European Journal of Operational '
            "Research 141, 660; data: doi:10.24432/C53W3X",
        ),
    ),
    "concrete": Table(
        "72c2b84792b1a415031dd37ff1cd94603d8bf4bae6efe9b65f1a22aeda0d2373",
        _UCI + "dataset/165/concrete+compressive+strength",
        "features x0 to x7, the published columns from cement to age; y is the strength, given "
        "with two decimals",
        DataSource(
            "Mixtures of concrete: y is the compressive strength in MPa.",
            _UCI_LICENCE,
            'I.-C. Yeh (1998), "Modeling of strength of high-performance concrete using artificial '
            'neural networks", Cement and Concrete Research 28, 1797. '
            "doi:10.1016/S0008-8846(98)00165-3; data: doi:10.24432/C5PK67",
        ),
    ),
    "energy_heating": Table(
        "ff6d29c4eaa9ccd5e59fee1682cfba47096d68a3a61030a78466e5f47a6f128b",
        _UCI + "dataset/242/energy+efficiency",
        "features x0 to x7, the published columns X1 to X8; y is Y1",
        DataSource(
            "Simulated buildings: y is the heating load in kWh/m².",
            _UCI_LICENCE,
            'A. Tsanas, A. Xifara (2012), "Accurate quantitative estimation of energy performance '
            'of residential buildings using statistical machine learning tools", Energy and '
            "Buildings 49, 560. doi:10.1016/j.enbuild.2012.03.003; data: doi:10.24432/C51307",
        ),
    ),
    "protein_casp_rmsd": Table(
        "2a2edccb38aaf338115359aeae86c9c0f5f7137f193b4a866c5147512ef22cec",
        _UCI + "dataset/265/physicochemical+properties+of+protein+tertiary+structure",
        "features x0 to x8, the published columns F1 to F9; y is RMSD",
        DataSource(
            "Predicted structures of proteins: y is the root mean squared distance to the true "
            "one in Å.",
            _UCI_LICENCE,
            'P. S. Rana (2013), "Physicochemical properties of protein tertiary structure", UCI '
            "Machine Learning Repository. doi:10.24432/C5QW3H",
        ),
        PublishedText(
            _UCI + "ml/machine-learning-databases/00265/CASP.csv",
            target=0,
            delimiter=",",
            header_lines=1,
        ),
    ),
    "star_2161": Table(
        "ed66e8c8a76a93c695b443775725d8b0563546847b3757f4ded8e11f34b28590",
        "https://github.com/yromano/cqr/blob/master/datasets/STAR.csv",
        "pupils without gaps only, each category replaced by its alphabetical rank among those in "
        "its column, from 0, school and system numbers kept; y is the sum of the eight scores",
        DataSource(
            "Pupils in Tennessee, kindergarten to third grade: y is the sum of four scores in "
            "reading and four in mathematics.",
            "CC0 1.0 (Harvard Dataverse)",
            "C. M. Achilles, H. P. Bain, F. Bellott et al. (2008), \"Tennessee's Student Teacher "
            'Achievement Ratio (STAR) project", Harvard Dataverse. doi:10.7910/DVN/SIWH9F',
        ),
    ),
    "yacht": Table(
        "14dd1f4e41d279705f326495a5adb449f60f0d76e47fa6459525e6799d8e5fe0",
        _UCI + "dataset/243/yacht+hydrodynamics",
        "features x0 to x5, the published columns but the last; y is the last",
        DataSource(
            "Towing tests of yacht hulls: y is the residuary resistance per unit weight of "
            "displacement (times 1000).",
            _UCI_LICENCE,
            'J. Gerritsma, R. Onnink, A. Versluis (1981), "Geometry, resistance and stability of '
            'the Delft systematic yacht hull series", International Shipbuilding Progress 28, 276; '
            "data: doi:10.24432/C5XG7R",
        ),
        PublishedText(
            _UCI + "ml/machine-learning-databases/00243/yacht_hydrodynamics.data", target=-1
        ),
    ),
}
