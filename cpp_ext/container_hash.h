// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "byte_source.h"
#include "stream_index.h"

namespace sparsevideo {

/// A hash of what a shard holds besides the packets of its video stream, as 32 hexadecimal digits.
///
/// The bytes of packets have checksums of their own, so the two together notice any change. Beyond
/// 4 MiB from both ends, bytes outside packets are left out. Where packets are no byte ranges, the
/// first and last 64 KiB of the file stand for the rest.
std::string container_hash(ByteSource& source, const StreamIndex& index);

}  // namespace sparsevideo
