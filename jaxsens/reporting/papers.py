"""What to cite: jaxsens, and the papers whose measurements it implements, as BibTeX.

Assumption: an arXiv number is enough to find the rest; no address is written, so that a page with
a citation asks nothing of the network.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper on arXiv.

    Attributes:
      key: what LaTeX calls it.
      title: its title.
      authors: "Family, Given" each; "others" for those that are not named.
      year: of its first version.
      arxiv: its number.

    Example:
      >>> print(Paper("nash1950", "Equilibrium points", ("Nash, John",), 1950, "0.0").bibtex())
      @misc{nash1950,
        title = {Equilibrium points},
        author = {Nash, John},
        year = {1950},
        eprint = {0.0},
        archivePrefix = {arXiv},
      }
    """

    key: str
    title: str
    authors: tuple[str, ...]
    year: int
    arxiv: str

    def bibtex(self) -> str:
        """The entry of a .bib file."""
        fields = {
            "title": self.title,
            "author": " and ".join(self.authors),
            "year": str(self.year),
            "eprint": self.arxiv,
            "archivePrefix": "arXiv",
        }
        return _entry("misc", self.key, fields)


SIMPLICITY_BIAS = Paper(
    "vasudeva2024simplicity",
    "Simplicity Bias of Transformers to Learn Low Sensitivity Functions",
    ("Vasudeva, Bhavya", "others"),
    2024,
    "2403.06925",
)
SENSITIVE_FUNCTIONS = Paper(
    "hahn2024sensitive",
    "Why are Sensitive Functions Hard for Transformers?",
    ("Hahn, Michael", "Rofin, Mark"),
    2024,
    "2402.09963",
)
WORD_SENSITIVITY = Paper(
    "bombari2024word",
    "Towards Understanding the Word Sensitivity of Attention Layers",
    ("Bombari, Simone", "Mondelli, Marco"),
    2024,
    "2402.02969",
)


def software_bibtex(version: str, commit: str = "") -> str:
    """The entry of jaxsens itself.

    Args:
      version: of the package.
      commit: what made the numbers, if it is known.
    """
    fields = {
        "title": "jaxsens: the sensitivity of neural networks to a random change of one token",
        "author": "{The jaxsens authors}",
        "version": version,
    }
    return _entry("software", "jaxsens", fields | ({"note": f"commit {commit}"} if commit else {}))


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
