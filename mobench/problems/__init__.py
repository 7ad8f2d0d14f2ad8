"""Problems with a flat vector of decision variables: one family, one small file.

May import: core, subproblems, metrics, models, kernels, data, system, errors.
"""

from mobench.problems.bilevel_quadratic import BilevelQuadratic
from mobench.problems.bilingual_speech import BilingualSpeech
from mobench.problems.constrained_gaussian import ConstrainedGaussian
from mobench.problems.constrained_toys import BallAndHalfSpace, HalfPlane
from mobench.problems.dtlz2 import DTLZ2
from mobench.problems.face_attributes import FaceAttributes
from mobench.problems.federated_images import FederatedImages
from mobench.problems.few_shot import FewShotLearning
from mobench.problems.hyper_cleaning import HyperCleaning
from mobench.problems.l1_regularized import L1Regularized
from mobench.problems.least_squares import LeastSquares
from mobench.problems.multi_mnist import MultiMNIST
from mobench.problems.pls import PLS
from mobench.problems.river_flow import RiverFlow
from mobench.problems.speech_surrogate import SpeechSurrogate
from mobench.problems.vlmop2 import VLMOP2
from mobench.problems.zdt import ZDT1, ZDT2, ZDT3

__all__ = [
    "DTLZ2",
    "PLS",
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
    "L1Regularized",
    "LeastSquares",
    "MultiMNIST",
    "RiverFlow",
    "SpeechSurrogate",
]
