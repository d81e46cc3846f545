def compile_cuda(
    code: str,
    target_format: str | None = None,
    arch: str | None = None,
    options: str | list[str] | None = None,
    path_target: str | None = None,
    compiler: str = "nvrtc",
) -> bytes | bytearray: ...
