// SPDX-License-Identifier: Apache-2.0
#include "picture_decoder.h"

#include <utility>

extern "C" {
#include <libavutil/opt.h>
}

#include "log_capture.h"

namespace sparsevideo {

bool reports_references(AVCodecID codec) {
  return codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_HEVC || codec == AV_CODEC_ID_AV1;
}

PictureDecoder::PictureDecoder(const AVCodecParameters& parameters, AVRational time_base, DecoderMode mode) {
  capture_log();
  const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
  if (codec == nullptr) {
    throw Error(ErrorKind::kFormat, std::string("no decoder for codec ") +
                                        avcodec_get_name(parameters.codec_id) +
                                        " (supported: h264, hevc, av1, mpeg4, vp9, mjpeg, mpeg2video)");
  }
  context_.reset(check_allocated(avcodec_alloc_context3(codec)));
  check(avcodec_parameters_to_context(context_.get(), &parameters), "cannot set up the decoder",
        ErrorKind::kFormat);
  context_->pkt_timebase = time_base;
  context_->thread_count = 1;
  context_->flags |= AV_CODEC_FLAG_COPY_OPAQUE;
  context_->opaque = this;
  if (mode == DecoderMode::kSparse) {
    context_->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  }
  if (mode == DecoderMode::kIndex && !reports_references(parameters.codec_id)) {
    // These decoders must do the work to say what they show, but not to make it look right.
    context_->skip_idct = AVDISCARD_ALL;
    context_->skip_loop_filter = AVDISCARD_ALL;
  }
  take_logged_error();
  check(avcodec_open2(context_.get(), codec, nullptr), "cannot open the decoder", ErrorKind::kFormat);
}

void PictureDecoder::report_units_to(OnCodedUnit on_coded_unit) {
  context_->coded_unit_callback = on_coded_unit ? report_unit : nullptr;
  on_coded_unit_ = std::move(on_coded_unit);
}

bool PictureDecoder::send(const AVPacket* packet) {
  take_logged_error();
  const int result = avcodec_send_packet(context_.get(), packet);
  if (std::string logged = take_logged_error(); complaint_.empty()) {
    complaint_ = std::move(logged);
  }
  if (result < 0 && complaint_.empty()) {
    complaint_ = error_text(result);
  }
  return result >= 0;
}

bool PictureDecoder::receive(AVFrame& frame) {
  take_logged_error();
  while (true) {
    av_frame_unref(&frame);
    const int result = avcodec_receive_frame(context_.get(), &frame);
    if (std::string logged = take_logged_error(); complaint_.empty()) {
      complaint_ = std::move(logged);
    }
    if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) {
      return false;
    }
    if (result >= 0) {
      return true;
    }
    if (complaint_.empty()) {
      complaint_ = error_text(result);
    }
  }
}

std::string PictureDecoder::take_complaint() { return std::exchange(complaint_, {}); }

int PictureDecoder::x264_build() const {
  std::int64_t build = -1;
  if (context_->codec_id == AV_CODEC_ID_H264) {
    av_opt_get_int(context_->priv_data, "x264_build", 0, &build);
  }
  return static_cast<int>(build);
}

void PictureDecoder::set_x264_build(int build) {
  if (context_->codec_id == AV_CODEC_ID_H264) {
    av_opt_set_int(context_->priv_data, "x264_build", build, 0);
  }
}

void PictureDecoder::report_unit(AVCodecContext* context, const AVCodedUnit* unit) {
  static_cast<const PictureDecoder*>(context->opaque)->on_coded_unit_(*unit);
}

}  // namespace sparsevideo
