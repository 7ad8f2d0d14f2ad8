#!/usr/bin/env bash
# Optuna 5.0.0: FanovaImportanceEvaluator gives a parameter drawn with log=True a small share of the variance that it explains.
#
# fANOVA (Hutter et al. 2014) splits the variance of the objective over the search space into the shares of the parameters. Optuna draws a parameter
# with log=True evenly over its logarithm, but computes the variance as if it were even over the parameter itself: nine tenths of the weight lie on
# the last decade of a learning rate from 1e-6 to 1, where a sixth of the trials are. The splits of a forest are the same on both scales, but not
# the volumes of its leaves. Here the learning rate makes half of the variance and gets a twentieth; where the same trials are recorded with the
# exponent as the parameter, it gets half. Step sizes and regularizations, which are nearly always drawn with log=True, look unimportant. The mean
# decrease of impurity weights by trials and gives the same for both. Up to Optuna 4, fANOVA is what get_param_importances uses by default.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check optuna==5.0.0 numpy==2.4.6 \
    scikit-learn==1.9.1 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, MeanDecreaseImpurityImportanceEvaluator, get_param_importances

optuna.logging.set_verbosity(optuna.logging.ERROR)
TRIALS = 200


def studies(decades):
    """A study with lr = 10^-decades to 1, drawn by Optuna, and the same trials with log10(lr) as the parameter."""

    def objective(trial):
        lr, other = trial.suggest_float("lr", 10.0**-decades, 1, log=True), trial.suggest_float("other", -decades, 0)
        return np.log10(lr) + other

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=TRIALS)
    same = optuna.create_study()
    even = FloatDistribution(-decades, 0)
    for trial in study.trials:
        params = {"lr": np.log10(trial.params["lr"]), "other": trial.params["other"]}
        same.add_trial(optuna.trial.create_trial(params=params, distributions={"lr": even, "other": even}, value=trial.value))
    return study, same


def share(study, evaluator):
    return get_param_importances(study, evaluator=evaluator(n_trees=16, seed=0))["lr"]


print("optuna", version("optuna"), "scikit-learn", version("scikit-learn"))
for decades in (2, 6):
    study, same = studies(decades)
    lr, value = np.array([(t.params["lr"], t.value) for t in study.trials]).T
    explained = np.corrcoef(np.log10(lr), value)[0, 1] ** 2
    fanova, exponent = share(study, FanovaImportanceEvaluator), share(same, FanovaImportanceEvaluator)
    impurity = share(study, MeanDecreaseImpurityImportanceEvaluator)
    print(f"lr over {decades} decades: log10(lr) explains {explained:.2f} of the variance of the trials; fANOVA gives lr {fanova:.3f}, "
          f"and {exponent:.3f} with the exponent as parameter; by impurity it is {impurity:.3f}; "
          f"{np.mean(lr > 0.1):.2f} of the trials are in the last decade")
    assert 0.4 < explained < 0.6 and 0.4 < exponent < 0.6 and 0.4 < impurity < 0.6
    assert fanova < {2: 0.4, 6: 0.1}[decades]
PY
