"""A case or two of every distribution, as data: names of tensors stand for arrays that both libraries get."""

import numpy as np

RNG = np.random.default_rng(5)
ARRAYS = {
    "loc": RNG.normal(size=(2, 3)),
    "pos": RNG.uniform(0.3, 3.0, (2, 3)),
    "pos2": RNG.uniform(0.3, 3.0, (2, 3)),
    "row": RNG.uniform(0.5, 2.0, (3,)),
    "big": RNG.uniform(4.5, 9.0, (2, 3)),
    "unit": RNG.uniform(0.05, 0.95, (2, 3)),
    "half": np.array([0.5, 0.4995, 0.9]),
    "apart": np.array([[0.86, 0.83, 0.07], [0.69, 0.05, 0.44]]),
    "odds": RNG.normal(size=(2, 3)),
    "weights": RNG.uniform(0.1, 1.0, (2, 3)),
    "rows": RNG.normal(size=(2, 3)),
    "sure": np.array([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0]]),
    "counts": np.array([[4.0, 2.0, 7.0], [1.0, 3.0, 5.0]]),
    "cov": np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]]),
    "tril": np.array([[1.0, 0.0, 0.0], [0.4, 2.0, 0.0], [-0.3, 0.1, 0.7]]),
    "thin": RNG.normal(size=(2, 3, 1)),
    "temperature": np.array([0.7]),
    "small": np.array([[0.1, -0.2, 0.0], [0.3, 0.45, -0.05]]),
    "angle": RNG.uniform(-3, 3, (2, 3)),
}


class Made(tuple):
    """A distribution within the arguments of another: (name, arguments)."""


#: (class, keyword arguments); strings name arrays.
CASES = [
    ("Normal", {"loc": "loc", "scale": "row"}),
    ("Normal", {"loc": 0.5, "scale": "pos"}),
    ("Bernoulli", {"probs": "unit"}),
    ("Bernoulli", {"logits": "odds"}),
    ("Categorical", {"probs": "weights"}),
    ("Categorical", {"logits": "rows"}),
    ("OneHotCategorical", {"probs": "weights"}),
    ("OneHotCategoricalStraightThrough", {"logits": "rows"}),
    ("Uniform", {"low": "loc", "high": 5.0}),
    ("Exponential", {"rate": "pos"}),
    ("Laplace", {"loc": "loc", "scale": "pos"}),
    ("LogNormal", {"loc": "loc", "scale": "pos"}),
    ("HalfNormal", {"scale": "pos"}),
    ("Cauchy", {"loc": "loc", "scale": "pos"}),
    ("HalfCauchy", {"scale": "pos"}),
    ("Gumbel", {"loc": "loc", "scale": "pos"}),
    ("Gamma", {"concentration": "pos", "rate": "pos2"}),
    ("Beta", {"concentration1": "pos", "concentration0": "pos2"}),
    ("Dirichlet", {"concentration": "pos"}),
    ("Chi2", {"df": "pos"}),
    ("StudentT", {"df": "big", "loc": "loc", "scale": "pos"}),
    ("StudentT", {"df": "pos", "loc": "loc", "scale": "pos"}),
    ("FisherSnedecor", {"df1": "pos", "df2": "big"}),
    ("Poisson", {"rate": "pos"}),
    ("Binomial", {"total_count": "counts", "probs": "unit"}),
    ("Binomial", {"total_count": 5, "logits": "odds"}),
    ("NegativeBinomial", {"total_count": "counts", "probs": "unit"}),
    ("NegativeBinomial", {"total_count": 3, "logits": "odds"}),
    ("Geometric", {"probs": "unit"}),
    ("Geometric", {"logits": "odds"}),
    ("Multinomial", {"total_count": 6, "probs": "weights"}),
    ("MultivariateNormal", {"loc": "loc", "covariance_matrix": "cov"}),
    ("MultivariateNormal", {"loc": "row", "precision_matrix": "cov"}),
    ("MultivariateNormal", {"loc": "loc", "scale_tril": "tril"}),
    ("LowRankMultivariateNormal", {"loc": "loc", "cov_factor": "thin", "cov_diag": "row"}),
    ("VonMises", {"loc": "loc", "concentration": "pos"}),
    ("Weibull", {"scale": "pos", "concentration": "big"}),
    ("Pareto", {"scale": "pos", "alpha": "big"}),
    ("Kumaraswamy", {"concentration1": "pos", "concentration0": "pos2"}),
    # Its formulae lose (1 - 2 p)^-2 digits next to 1/2, where float32 has none of the slope left.
    ("ContinuousBernoulli", {"probs": "apart"}),
    ("ContinuousBernoulli", {"probs": "half"}),
    ("ContinuousBernoulli", {"logits": "odds"}),
    ("RelaxedBernoulli", {"temperature": "temperature", "probs": "unit"}),
    ("RelaxedOneHotCategorical", {"temperature": "temperature", "logits": "rows"}),
    ("LogisticNormal", {"loc": "loc", "scale": "pos"}),
    ("InverseGamma", {"concentration": "big", "rate": "pos"}),
    ("GeneralizedPareto", {"loc": "loc", "scale": "pos", "concentration": "small"}),
    ("LKJCholesky", {"dim": 3, "concentration": "row"}),
    ("Wishart", {"df": "big", "covariance_matrix": "cov"}),
    ("Wishart", {"df": "row_df", "scale_tril": "tril"}),
    (
        "MixtureSameFamily",
        {
            "mixture_distribution": Made(("Categorical", {"probs": "weights"})),
            "component_distribution": Made(("Normal", {"loc": "loc", "scale": "pos"})),
        },
    ),
    (
        "Independent",
        {
            "base_distribution": Made(("Normal", {"loc": "loc", "scale": "pos"})),
            "reinterpreted_batch_ndims": 1,
        },
    ),
]
ARRAYS["row_df"] = np.array([4.0, 5.5])
ARRAYS["unit_high"] = RNG.uniform(0.4, 0.95, (2, 3))


def build(lib, case, dtype="float64", leaves=None, **more):
    """The distribution of ``case`` in ``lib``; its parameters are put into ``leaves``."""
    name, arguments = case

    def made(value):
        if isinstance(value, Made):
            return build(lib, value, dtype, leaves)
        if not isinstance(value, str):
            return value
        tensor = lib.tensor(ARRAYS[value], dtype=getattr(lib, dtype))
        if leaves is not None and value != "counts":
            leaves.append(tensor.requires_grad_())
        return tensor.tril() if value == "tril" else tensor

    return getattr(lib.distributions, name)(**{k: made(v) for k, v in arguments.items()}, **more)


def label(case):
    return f"{case[0]}-{'-'.join(f'{v}' for v in case[1].values() if isinstance(v, str))}"
