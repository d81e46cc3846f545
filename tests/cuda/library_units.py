"""Units that a library's call computes: every form that a call has, at small and odd shapes."""

from __future__ import annotations

from dataclasses import replace

from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Matrix, Unit, View

EVERYTHING = Epilogue(bias=True, residual="before", activation="relu")
BIAS = Epilogue(bias=True)
CONV = Conv2d(dtype="float16", n=2, h=9, w=7, c=24, oc=40, r=3, s=3, padding=(1, 1, 1, 1))
EXACT = replace(CONV, dtype="float32", math="ieee", c=8, oc=12)
DEPTHWISE = replace(CONV, oc=24, groups=24, epilogue=Epilogue(bias=True, activation="relu"))

CONVOLUTIONS: tuple[Conv2d, ...] = (
    CONV,
    replace(CONV, epilogue=EVERYTHING),
    replace(CONV, epilogue=BIAS),
    replace(CONV, epilogue=Epilogue(activation="relu")),
    replace(CONV, epilogue=Epilogue(residual="before")),
    replace(CONV, epilogue=Epilogue(bias=True, residual="after", activation="relu")),
    replace(CONV, epilogue=Epilogue(bias=True, residual="after")),
    replace(CONV, epilogue=Epilogue(bias=True, activation="relu", output="float32")),
    *(
        replace(CONV, epilogue=Epilogue(bias=True, activation=name))
        for name in ("relu6", "sigmoid", "silu", "gelu", "gelu_tanh")
    ),
    replace(CONV, epilogue=Epilogue(bias=True, activation="clip", parameters=(-0.5, 0.75))),
    replace(CONV, epilogue=Epilogue(bias=True, activation="leaky_relu", parameters=(0.1,))),
    replace(CONV, dtype="bfloat16", epilogue=EVERYTHING),
    replace(CONV, stride=(2, 2), epilogue=EVERYTHING),
    replace(CONV, stride=(2, 2), padding=(0, 0, 1, 1), epilogue=BIAS),
    replace(CONV, dilation=(2, 2), padding=(2, 2, 2, 2), epilogue=BIAS),
    replace(CONV, r=1, s=7, padding=(0, 3, 0, 3), epilogue=EVERYTHING),
    replace(CONV, r=1, s=1, padding=(0, 0, 0, 0), epilogue=EVERYTHING),
    replace(CONV, r=1, s=1, padding=(0, 0, 0, 0), stride=(2, 2), epilogue=BIAS),
    replace(CONV, c=3, r=7, s=7, padding=(3, 3, 3, 3), stride=(2, 2), epilogue=BIAS),
    replace(CONV, c=32, oc=64, groups=4, epilogue=Epilogue(bias=True, activation="relu")),
    DEPTHWISE,
    EXACT,
    replace(EXACT, epilogue=EVERYTHING),
    replace(EXACT, math="tf32x3", epilogue=BIAS),
    replace(EXACT, math="tf32", epilogue=EVERYTHING),
)
"""What cuDNN computes."""

PRODUCT = Matmul(dtype="float16", m=7, n=24, k=16)
PRODUCTS: tuple[Unit, ...] = (
    PRODUCT,
    replace(PRODUCT, epilogue=EVERYTHING),
    replace(PRODUCT, epilogue=Epilogue(bias=True, activation="gelu_tanh"), scale=0.5),
    replace(PRODUCT, dtype="bfloat16", epilogue=EVERYTHING),
    replace(PRODUCT, y=Matrix(row=40, column=1, offset=8), a=Matrix(row=32, column=1)),
    replace(CONV, r=1, s=1, padding=(0, 0, 0, 0), output=View(pitch=56, offset=8)),
)
"""Some that cuBLASLt computes."""
