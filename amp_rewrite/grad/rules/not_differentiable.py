"""Operators without a gradient: steps, comparisons, integers, random numbers, quantization."""

from __future__ import annotations

NOT_DIFFERENTIABLE: frozenset[str] = frozenset(
    {
        # piecewise constant: the derivative is zero wherever there is one
        "Sign",
        "Hardmax",
        "Floor",
        "Ceil",
        "Round",
        "IsNaN",
        "IsInf",
        # comparisons and logic
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Not",
        "And",
        "Or",
        "Xor",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "BitwiseNot",
        "BitShift",
        # indices and shapes
        "ArgMax",
        "ArgMin",
        "NonZero",
        "Shape",
        "Size",
        "OneHot",
        "EyeLike",
        "NonMaxSuppression",
        "ConstantOfShape",
        "Constant",
        "Range",
        # random numbers, which depend on the shape or the type of an input at most
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
        # quantization: steps
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearMatMul",
        "QLinearConv",
        "MatMulInteger",
        "ConvInteger",
        # windows, whose length is an integer
        "HannWindow",
        "HammingWindow",
        "BlackmanWindow",
        "MelWeightMatrix",
        # text
        "StringNormalizer",
        "TfIdfVectorizer",
        "StringConcat",
        "StringSplit",
        "RegexFullMatch",
    }
)
