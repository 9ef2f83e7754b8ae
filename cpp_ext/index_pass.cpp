// SPDX-License-Identifier: Apache-2.0
#include "index_pass.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

namespace sparsevideo {

StreamIndex::Pass::Pass(StreamIndex& index, ByteSource& source)
    : index_(index),
      demuxer_(source, index.has_graph()),
      state_writer_(*demuxer_.stream().codecpar),
      is_av1_(demuxer_.stream().codecpar->codec_id == AV_CODEC_ID_AV1) {
  const AVStream& stream = demuxer_.stream();
  index_.parameters_.reset(check_allocated(avcodec_parameters_alloc()));
  check(avcodec_parameters_copy(index_.parameters_.get(), stream.codecpar),
        "cannot copy the codec's parameters", ErrorKind::kFormat);
  index_.time_base_ = stream.time_base;
  index_.average_fps_ = demuxer_.average_fps();
  index_.rotation_degrees_ = demuxer_.rotation_degrees();
  index_.packets_are_byte_ranges_ = demuxer_.packets_are_byte_ranges();
  index_.codec_has_graph_ = index_.has_graph() && reports_references(stream.codecpar->codec_id);
  if (index_.has_graph() && !index_.codec_has_graph_) {
    index_.fallback_reason_ =
        std::string("no reference graph for codec ") + avcodec_get_name(stream.codecpar->codec_id);
  }
  decoder_ = std::make_unique<PictureDecoder>(*stream.codecpar, stream.time_base, DecoderMode::kIndex);
  if (index_.codec_has_graph_) {
    decoder_->report_units_to([this](const AVCodedUnit& unit) { on_coded_unit(unit); });
  }
  if (index_.first_reorder_depth_ >= 0) {
    decoder_->set_reorder_depth(index_.first_reorder_depth_);
  }
  reorder_depth_at_first_ = decoder_->reorder_depth();
}

bool StreamIndex::Pass::learnt_reorder_depth() const {
  const auto to_show = std::ranges::count_if(
      index_.traits_, [](std::uint8_t traits) { return (traits & PictureTraits::kDiscard) == 0; });
  return index_.reorder_depth_ > reorder_depth_at_first_ && std::ssize(index_.frames_) < to_show;
}

void StreamIndex::Pass::run() {
  while (!found_layers_ && demuxer_.read(*packet_)) {
    add_packet();
    parse_packet();
    if (continues_) {
      picture_.merge(facts_);
      ++index_.pictures_.back().packet_count;
    } else {
      finish_picture();
      picture_ = std::move(facts_);
      index_.pictures_.push_back({packet_number(), 1, 0});
    }
  }
  if (found_layers_) {
    return;
  }
  decoder_->send(nullptr);
  take_frames();
  if (const std::string complaint = decoder_->take_complaint(); picture_.doubt.empty()) {
    picture_.doubt = complaint;
  }
  finish_picture();
  if (index_.frames_.empty()) {
    const std::string& reason = index_.fallback_reason_;
    throw Error(ErrorKind::kFormat,
                "no frame of it can be decoded" + (reason.empty() ? reason : ": " + reason));
  }
  index_.reorder_depth_ = decoder_->reorder_depth();
  index_.x264_build_ = decoder_->x264_build();
  find_disposable_pictures();
  time_frames();
}

void StreamIndex::Pass::parse_packet() {
  decoder_->send(packet_.get());
  if (precedes_first_irap()) {
    decoder_->flush();
    decoder_->take_complaint();
    state_writer_.forget_slices();
    facts_ = {};
    ++index_.first_picture_;
    return;
  }
  take_frames();
  watch_x264_build();
  doubt(decoder_->take_complaint());
  PacketRecord& record = index_.packets_.back();
  record.state_begin = index_.state_bytes_.size();
  if (index_.codec_has_graph_) {
    state_writer_.write(packet_bytes(), index_.state_bytes_);
  }
  record.state_size = static_cast<std::uint32_t>(index_.state_bytes_.size() - record.state_begin);
}

// Pictures before the first IRAP picture refer to what is not in the stream, and the decoder would
// make it up. They are no pictures of the coded video sequence (H.265 8.1.3): they are passed over
// here, and never decoded.
bool StreamIndex::Pass::precedes_first_irap() {
  const bool is_irap = facts_.has_slices && (facts_.common_flags & AV_CODED_UNIT_IRAP) != 0;
  found_start_ = found_start_ || index_.parameters_->codec_id != AV_CODEC_ID_HEVC || is_irap;
  return !found_start_;
}

void StreamIndex::Pass::add_packet() {
  facts_ = {};
  continues_ = false;
  index_.packets_.push_back({.pts = packet_->pts,
                             .dts = packet_->dts,
                             .position = packet_->pos,
                             .size_bytes = static_cast<std::uint32_t>(packet_->size),
                             .checksum = checksum(packet_bytes()),
                             .picture = static_cast<std::int32_t>(index_.pictures_.size()),
                             .state_begin = 0,
                             .state_size = 0});
  shown_.push_back(false);
  name_packet(*packet_, packet_number());
  if ((packet_->flags & AV_PKT_FLAG_KEY) != 0) {
    facts_.traits |= PictureTraits::kKey;
  }
  if ((packet_->flags & AV_PKT_FLAG_DISCARD) != 0) {
    facts_.traits |= PictureTraits::kDiscard;
  }
  if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) {
    doubt("the container marks a packet as corrupt");
  }
  std::size_t size = 0;
  const std::uint8_t* extradata = av_packet_get_side_data(packet_.get(), AV_PKT_DATA_NEW_EXTRADATA, &size);
  if (extradata != nullptr && size > 0) {
    index_.extradata_changes_.push_back({index_.packets_.back().picture, {extradata, extradata + size}});
    state_writer_.set_extradata({extradata, size});
    facts_.has_state_units = true;
  }
  if (index_.codec_has_graph_) {
    packet_->flags |= AV_PKT_FLAG_STATE_ONLY;
  }
}

void StreamIndex::Pass::doubt(std::string reason) {
  if (facts_.doubt.empty()) {
    facts_.doubt = std::move(reason);
  }
}

void StreamIndex::Pass::on_coded_unit(const AVCodedUnit& unit) {
  if (unit.picture != nullptr) {
    on_slice(unit);
  } else if (!index_.packets_.empty()) {  // else it comes from the extradata
    facts_.has_state_units = true;
    found_layers_ = found_layers_ || (unit.flags & AV_CODED_UNIT_LAYERS) != 0;
    if ((unit.flags & AV_CODED_UNIT_PARAMETER_SET) != 0) {
      StateEvent event{index_.packets_.back().picture, {}};
      state_writer_.write_unit({unit.data, static_cast<std::size_t>(unit.size)}, event.bytes);
      index_.parameter_sets_.push_back(std::move(event));
    }
  }
}

void StreamIndex::Pass::on_slice(const AVCodedUnit& unit) {
  state_writer_.add_slice(unit, packet_bytes());
  PacketRecord& packet = index_.packets_.back();
  const std::int32_t owner = packet_of(*unit.picture);
  if (owner != packet_number() && !facts_.has_slices && owner >= 0 && owner == packet_number() - 1 &&
      !index_.pictures_.empty() && index_.pictures_.back().packet_count == 1) {
    continues_ = true;  // this packet's field completes the frame that the last one began
    packet.picture -= 1;
    facts_.lists_hash = picture_.lists_hash;
  } else if (owner != packet_number() && (!continues_ || owner != packet_number() - 1)) {
    doubt("a packet holds slices of several pictures");
    return;
  }
  facts_.has_slices = true;
  facts_.structures |= unit.structure;
  facts_.common_flags &= unit.flags;
  facts_.lists_hash = hash_references(facts_.lists_hash, unit, packet.picture, index_.packets_);
  if (has_missing_reference(unit)) {
    doubt("a reference is missing");
  }
  if ((unit.flags & AV_CODED_UNIT_UNCERTAIN) != 0) {
    doubt("a frame's header may depend on more than the frames it refers to");
  }
  if ((unit.flags & AV_CODED_UNIT_SHOW_EXISTING) != 0) {
    facts_.traits |= PictureTraits::kShowsExisting;
  }
  if ((unit.flags & AV_CODED_UNIT_FILM_GRAIN) != 0) {
    doubt("frames are shown with film grain");
  }
  const bool is_irap = (unit.flags & AV_CODED_UNIT_IRAP) != 0;
  for (const AVCodedReference& reference : references_of(unit)) {
    const std::int32_t other_packet = packet_of(*reference.frame);
    if (other_packet < 0 || other_packet > packet_number()) {
      doubt("a reference has no packet");
      continue;
    }
    const std::int32_t other = index_.packets_[static_cast<std::size_t>(other_packet)].picture;
    if (other == packet.picture) {
      if (unit.structure == 3 && reference.list >= 0) {
        doubt("a reference is missing");  // made up while this very packet was decoded
      }
    } else if (reference.list >= 0) {
      facts_.references.push_back(other);
    } else if (!is_irap) {  // what an IRAP picture retains is for the leading pictures it may lose
      facts_.retained.push_back(other);
    }
  }
}

void StreamIndex::Pass::take_frames() {
  while (decoder_->receive(*frame_)) {
    const std::int32_t packet = packet_of(*frame_);
    if (packet < 0 || packet > packet_number()) {
      index_.frames_name_packets_ = false;
      doubt("a frame has no packet");
      continue;
    }
    if (frame_->decode_error_flags != 0) {
      doubt("a frame with decoding errors");
    }
    if (shown_[static_cast<std::size_t>(packet)]) {
      index_.frames_name_packets_ = false;
      doubt("a packet shows several frames");
    }
    shown_[static_cast<std::size_t>(packet)] = true;
    index_.frames_.push_back({.pts = frame_->pts,
                              .duration = frame_->duration,
                              .picture = index_.packets_[static_cast<std::size_t>(packet)].picture,
                              .width = frame_->width,
                              .height = frame_->height});
  }
}

// x264 writes its version into the first packet only, and old versions need workarounds. A decoder
// that starts later is told the version, so it must be one and the same.
void StreamIndex::Pass::watch_x264_build() {
  if ((facts_.traits & PictureTraits::kKey) == 0) {
    return;
  }
  constexpr int kFirstWithoutWorkarounds = 151;
  const int build = decoder_->x264_build();
  lowest_x264_build_ = std::min(lowest_x264_build_, build < 0 ? kFirstWithoutWorkarounds : build);
  highest_x264_build_ = std::max(highest_x264_build_, build);
  if (lowest_x264_build_ < kFirstWithoutWorkarounds && lowest_x264_build_ != highest_x264_build_) {
    doubt("parts of it come from different versions of x264");
  }
}

// The key frames of MPEG-2 and MPEG-4 part 2, and what containers call one in AV1, may be followed by
// pictures that predict from what is before them, and nothing tells which.
bool StreamIndex::Pass::keys_are_starts() const {
  const AVCodecID codec = index_.parameters_->codec_id;
  return codec != AV_CODEC_ID_MPEG2VIDEO && codec != AV_CODEC_ID_MPEG4 && codec != AV_CODEC_ID_AV1;
}

bool StreamIndex::Pass::all_slices(int flag) const {
  return picture_.has_slices && (picture_.common_flags & flag) != 0;
}

// Of AV1 nothing but the closure is sent. That leaves slots out of date, but none that a picture of the
// closure lists: what refreshed it last in the whole stream would be in the closure, and would be sent.
bool StreamIndex::Pass::is_disposable() const {
  return is_av1_ || (all_slices(AV_CODED_UNIT_DISPOSABLE) && !picture_.has_state_units);
}

bool StreamIndex::Pass::is_start(std::int32_t picture) const {
  const AVCodecID codec = index_.parameters_->codec_id;
  const bool intra = picture_.has_slices && picture_.references.empty();
  if (!index_.codec_has_graph_) {
    return picture == 0 || ((picture_.traits & PictureTraits::kKey) != 0 && keys_are_starts());
  }
  if (is_av1_) {
    return intra && picture_.doubt.empty();
  }
  return codec == AV_CODEC_ID_H264 ? intra && !is_disposable() : all_slices(AV_CODED_UNIT_IRAP);
}

// Fills in picture_, the last of pictures_.
void StreamIndex::Pass::finish_picture() {
  if (index_.pictures_.empty()) {
    return;
  }
  const auto number = static_cast<std::int32_t>(index_.pictures_.size()) - 1;
  PictureRecord& record = index_.pictures_.back();
  record.lists_hash = folded(picture_.lists_hash);
  if (picture_.has_slices && picture_.structures != 3 && picture_.doubt.empty()) {
    picture_.doubt = "a field has no partner";
  }
  std::uint8_t traits = picture_.traits;
  traits |= is_disposable() ? PictureTraits::kDisposable : 0U;
  traits |= all_slices(AV_CODED_UNIT_RESET) || number == index_.first_picture_ ? PictureTraits::kReset : 0U;
  traits |= all_slices(AV_CODED_UNIT_IRAP) ? PictureTraits::kLeadingSkipped : 0U;
  traits |= is_start(number) ? PictureTraits::kStart : 0U;
  if (!picture_.doubt.empty()) {
    traits |= PictureTraits::kOpaque;
    if (index_.fallback_reason_.empty()) {
      index_.fallback_reason_ = picture_.doubt + " (coded picture " + std::to_string(number) + ")";
    }
  }
  index_.traits_.push_back(traits);
  index_.picture_pts_.push_back(index_.packets_[static_cast<std::size_t>(record.first_packet)].pts);
  index_.graph_.add_picture(picture_.references, picture_.retained);
  used_.push_back(false);
  for (const auto& others : {picture_.references, picture_.retained}) {
    for (const std::int32_t other : others) {
      used_[static_cast<std::size_t>(other)] = true;
    }
  }
}

// HEVC's sub-layer non-reference pictures may still serve pictures of higher sub-layers.
void StreamIndex::Pass::find_disposable_pictures() {
  if (is_av1_) {
    return;
  }
  for (std::size_t picture = 0; picture < used_.size(); ++picture) {
    if (used_[picture]) {
      index_.traits_[picture] &= static_cast<std::uint8_t>(~PictureTraits::kDisposable);
    }
  }
}

// Where most frames have no timestamp (raw streams, AVI) all get theirs from the frame rate; a few
// without one follow the frame before. A frame lasts until the next timestamp; the last one as long
// as its packet says, or as one frame.
void StreamIndex::Pass::time_frames() {
  auto& frames = index_.frames_;
  AVRational fps = index_.average_fps_;
  if (fps.num <= 0 || fps.den <= 0) {
    fps = {25, 1};
  }
  const std::int64_t one_frame = std::max<std::int64_t>(1, av_rescale_q(1, av_inv_q(fps), index_.time_base_));
  const auto is_known = [](const FrameRecord& frame) { return frame.pts != AV_NOPTS_VALUE; };
  const auto known = std::ranges::count_if(frames, is_known);
  if (known * 2 < std::ssize(frames)) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      frames[i].pts = av_rescale_q(static_cast<std::int64_t>(i), av_inv_q(fps), index_.time_base_);
    }
  } else {
    const auto first = std::ranges::find_if(frames, is_known);
    std::int64_t pts = first->pts - one_frame * (first - frames.begin() + 1);
    for (FrameRecord& frame : frames) {
      pts = is_known(frame) ? frame.pts : pts + one_frame;
      frame.pts = pts;
    }
  }
  std::vector<std::size_t> order(frames.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return frames[i].pts; });
  std::int64_t next_pts = AV_NOPTS_VALUE;  // the first one after the frame in hand
  std::int64_t same_pts = AV_NOPTS_VALUE;
  for (std::size_t position = order.size(); position-- > 0;) {
    FrameRecord& frame = frames[order[position]];
    if (same_pts != AV_NOPTS_VALUE && frame.pts != same_pts) {
      next_pts = same_pts;
    }
    same_pts = frame.pts;
    if (next_pts != AV_NOPTS_VALUE) {
      frame.duration = next_pts - frame.pts;
    } else if (frame.duration <= 0) {
      frame.duration = one_frame;
    }
  }
}

}  // namespace sparsevideo
