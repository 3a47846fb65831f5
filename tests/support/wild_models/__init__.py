"""Random models as files hold them: any shapes and types, control flow, functions, odd names.

Every value has a known type, a known shape and a bound of its magnitude, so that what a row adds is
valid by construction. Floating-point constants and inputs are multiples of an eighth that float16
and bfloat16 hold: rounding weights changes nothing, and a rewritten model whose types are widened
again computes what the original does.
"""
