// SPDX-License-Identifier: Apache-2.0
// Owners for FFmpeg's objects, and the one place where its error codes become exceptions.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavcodec/bsf.h>
#include <libavformat/avformat.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>

#include "error.h"

namespace sparsevideo {

template <auto kFree>
struct FreeByAddress {
  template <typename T>
  void operator()(T* object) const noexcept {
    kFree(&object);
  }
};

struct FreeIoContext {
  void operator()(AVIOContext* context) const noexcept {
    av_freep(static_cast<void*>(&context->buffer));
    avio_context_free(&context);
  }
};

struct FreeScaler {
  void operator()(SwsContext* context) const noexcept { sws_freeContext(context); }
};

using PacketPtr = std::unique_ptr<AVPacket, FreeByAddress<av_packet_free>>;
using FramePtr = std::unique_ptr<AVFrame, FreeByAddress<av_frame_free>>;
using CodecContextPtr = std::unique_ptr<AVCodecContext, FreeByAddress<avcodec_free_context>>;
using BitstreamFilterPtr = std::unique_ptr<AVBSFContext, FreeByAddress<av_bsf_free>>;
using CodecParametersPtr = std::unique_ptr<AVCodecParameters, FreeByAddress<avcodec_parameters_free>>;
using FormatContextPtr = std::unique_ptr<AVFormatContext, FreeByAddress<avformat_close_input>>;
using IoContextPtr = std::unique_ptr<AVIOContext, FreeIoContext>;
using ScalerPtr = std::unique_ptr<SwsContext, FreeScaler>;

inline std::string error_text(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  return av_make_error_string(text, sizeof text, code);
}

/// Throws Error(`kind`) saying what failed if `code` is negative, and returns it otherwise.
inline int check(int code, const std::string& action, ErrorKind kind) {
  if (code < 0) {
    throw Error(kind, action + ": " + error_text(code));
  }
  return code;
}

/// Throws std::bad_alloc if FFmpeg could not allocate.
template <typename T>
T* check_allocated(T* object) {
  if (object == nullptr) {
    throw std::bad_alloc();
  }
  return object;
}

inline PacketPtr make_packet() { return PacketPtr(check_allocated(av_packet_alloc())); }
inline FramePtr make_frame() { return FramePtr(check_allocated(av_frame_alloc())); }

}  // namespace sparsevideo
