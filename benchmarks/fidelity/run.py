"""How much of each format arrives, all in one file of figures."""

from statistics import mean

from benchmarks import report
from benchmarks.fidelity import docx, hangul, pdf

AIM = {"likeness": 0.95, "pairs_token_f1": 0.99, "right_page": 0.98, "area": 0.9}


def main() -> None:
    folder = pdf.FOLDER
    if not folder.exists():
        print("\nfidelity: left out, as the data it reads does not lie beside the project")
        return
    figures = {
        "docx": docx.main(folder / "docx" / "docling"),
        "hangul": hangul.main(folder / "hwp"),
        "pdf": pdf.main(folder),
    }
    report.write("fidelity", {"aim": AIM, **figures})
    rows = [
        (name, len(found), *(_mean(found, key) for key in ("likeness", "token_f1")))
        for name, found in figures.items()
    ]
    report.table("What of each format arrives", ("format", "files", "likeness", "token F1"), rows)


def _mean(found: dict[str, dict[str, float]], key: str) -> str:
    values = [one[key] for one in found.values() if key in one]
    return f"{mean(values):.3f}" if values else "-"


if __name__ == "__main__":
    main()
