"""Problems with a flat vector of decision variables: one family, one small file.

May import: core, solvers, metrics, models, kernels, data, system, errors.

A class is imported when it is first used: some need libraries that take longer than a short job.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mobench.problems.bilevel_quadratic import BilevelQuadratic
    from mobench.problems.bilingual_speech import BilingualSpeech
    from mobench.problems.constrained_gaussian import ConstrainedGaussian
    from mobench.problems.constrained_toys import BallAndHalfSpace, HalfPlane
    from mobench.problems.dtlz import DTLZ
    from mobench.problems.dtlz2 import DTLZ2
    from mobench.problems.face_attributes import FaceAttributes
    from mobench.problems.federated_images import FederatedImages
    from mobench.problems.few_shot import FewShotLearning
    from mobench.problems.hyper_cleaning import HyperCleaning
    from mobench.problems.least_squares import LeastSquares
    from mobench.problems.multi_mnist import MultiMNIST
    from mobench.problems.pls import PLS
    from mobench.problems.re import RE
    from mobench.problems.river_flow import RiverFlow
    from mobench.problems.speech_surrogate import SpeechSurrogate
    from mobench.problems.uf import UF
    from mobench.problems.vlmop2 import VLMOP2
    from mobench.problems.zdt import ZDT1, ZDT2, ZDT3

# the file of each class
FILES = {
    "BallAndHalfSpace": "constrained_toys",
    "BilevelQuadratic": "bilevel_quadratic",
    "BilingualSpeech": "bilingual_speech",
    "ConstrainedGaussian": "constrained_gaussian",
    "DTLZ": "dtlz",
    "DTLZ2": "dtlz2",
    "FaceAttributes": "face_attributes",
    "FederatedImages": "federated_images",
    "FewShotLearning": "few_shot",
    "HalfPlane": "constrained_toys",
    "HyperCleaning": "hyper_cleaning",
    "LeastSquares": "least_squares",
    "MultiMNIST": "multi_mnist",
    "PLS": "pls",
    "RE": "re",
    "RiverFlow": "river_flow",
    "SpeechSurrogate": "speech_surrogate",
    "UF": "uf",
    "VLMOP2": "vlmop2",
    "ZDT1": "zdt",
    "ZDT2": "zdt",
    "ZDT3": "zdt",
}

__all__ = [
    "DTLZ",
    "DTLZ2",
    "PLS",
    "RE",
    "UF",
    "VLMOP2",
    "ZDT1",
    "ZDT2",
    "ZDT3",
    "BallAndHalfSpace",
    "BilevelQuadratic",
    "BilingualSpeech",
    "ConstrainedGaussian",
    "FaceAttributes",
    "FederatedImages",
    "FewShotLearning",
    "HalfPlane",
    "HyperCleaning",
    "LeastSquares",
    "MultiMNIST",
    "RiverFlow",
    "SpeechSurrogate",
]


def __getattr__(name: str) -> Any:
    """The class of that name, from its file."""
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    cls = getattr(import_module(f"{__name__}.{FILES[name]}"), name)
    globals()[name] = cls
    return cls


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
