from collections.abc import Iterable, Sequence

import numpy
import numpy.typing


class EncoderSettings:
    def __init__(self, *, codec: str, width: int, height: int, bit_depth: int = 8, preset: str = 'medium', tune: str = 'psnr', crf: float | None = None, qp: int | None = None, reference_b: bool = False, num_threads: int = 1, average_fps: tuple[int, int] = (30, 1), color_primaries: int = 2, color_trc: int = 2, color_space: int = 2, color_range: int = 0, chroma_location: int = 0, sample_aspect_ratio: tuple[int, int] = (0, 1)) -> None: ...

class ShardWriter:
    def __init__(self, path: str, settings: EncoderSettings, *, time_base: tuple[int, int], rotation: int = 0) -> None: ...

    def encode_episode(self, frames: Iterable[Sequence[numpy.typing.NDArray[numpy.integer]]], pts: numpy.typing.NDArray[numpy.int64], types: str, *, end_pts: int | None = None) -> int: ...

    def close(self) -> None: ...

def trial_encode(settings: EncoderSettings, frames: Iterable[Sequence[numpy.typing.NDArray[numpy.integer]]], types: str) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float64]]: ...
