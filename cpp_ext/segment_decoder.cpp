// SPDX-License-Identifier: Apache-2.0
#include "segment_decoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <utility>

#include "shard.h"

namespace sparsevideo {

namespace {

Outcome outcome_of(const Segment& segment, std::int32_t picture) {
  return segment.outcomes[static_cast<std::size_t>(picture - segment.start)];
}

// Codecs without a graph may say only in the first packet what holds for all: tables, the encoder's
// version. A decoder that starts later sees that packet first.
bool needs_first_packet(const StreamIndex& index, const Segment& segment) {
  return !index.codec_has_graph() && segment.start > 0;
}

// A damaged picture of Motion JPEG may show what the decoder still holds of the one before.
bool needs_packet_before(const StreamIndex& index, const Segment& segment) {
  return index.parameters().codec_id == AV_CODEC_ID_MJPEG && segment.start > 1;
}

std::int32_t first_packet_of(const StreamIndex& index, const Segment& segment) {
  return index.pictures()[static_cast<std::size_t>(segment.start)].first_packet;
}

std::vector<std::int32_t> packets_to_read(const StreamIndex& index, const Segment& segment) {
  std::vector<std::int32_t> packets;
  if (needs_first_packet(index, segment)) {
    packets.push_back(0);
  }
  if (needs_packet_before(index, segment)) {
    packets.push_back(first_packet_of(index, segment) - 1);
  }
  for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
    if (outcome_of(segment, picture) == Outcome::kReconstruct) {
      const PictureRecord& record = index.pictures()[static_cast<std::size_t>(picture)];
      for (std::int32_t i = 0; i < record.packet_count; ++i) {
        packets.push_back(record.first_packet + i);
      }
    }
  }
  return packets;
}

}  // namespace

/// One attempt at a segment.
class SegmentDecoder::Run {
 public:
  Run(SegmentDecoder& owner, const Segment& segment, Trust trust, std::set<std::int32_t>& missing)
      : owner_(owner),
        index_(owner.index_),
        segment_(segment),
        trust_(trust),
        missing_(missing),
        reader_(owner.source_, index_, packets_to_read(index_, segment)),
        decoder_(
            owner.take_decoder(trust == Trust::kPlanned ? DecoderMode::kSparse : DecoderMode::kContiguous)) {
    if (units_are_reported()) {
      decoder_->report_units_to([this](const AVCodedUnit& unit) { on_coded_unit(unit); });
    }
  }

  /// Delivers frames and takes them out of `missing`. Returns the first doubt, or "".
  std::string execute();

  /// Ends the run; nothing of it is left in the decoder but what was said about the stream.
  std::unique_ptr<PictureDecoder> release_decoder();

  /// What is wrong with a decoded picture, or "".
  [[nodiscard]] std::string damage_of(std::int32_t picture) const;

  [[nodiscard]] std::int64_t bytes_read() const { return reader_.bytes_read(); }

 private:
  void send_picture(std::int32_t picture, Outcome outcome);
  void send_packet(std::int32_t number, Outcome outcome);
  void check_references(std::int32_t picture, Outcome outcome);
  void take_frames();
  std::int32_t shown_picture();
  void on_coded_unit(const AVCodedUnit& unit);
  void on_reference(std::int32_t picture, const AVFrame& frame);
  void note_doubt(std::int32_t picture, const std::string& doubt);
  void inherit_damage(std::int32_t picture);

  // The reader of AV1 headers is asked only where it decides what may be left out.
  [[nodiscard]] bool units_are_reported() const { return trust_ == Trust::kPlanned || !is_av1(); }
  [[nodiscard]] bool is_av1() const { return index_.parameters().codec_id == AV_CODEC_ID_AV1; }

  SegmentDecoder& owner_;
  const StreamIndex& index_;
  const Segment& segment_;
  const Trust trust_;
  std::set<std::int32_t>& missing_;
  PacketReader reader_;
  std::unique_ptr<PictureDecoder> decoder_;
  FramePtr frame_ = make_frame();
  PacketPtr packet_ = make_packet();
  std::int32_t sending_ = -1;  // the picture whose packets are being sent
  std::uint64_t lists_hash_ = 0;
  std::size_t frames_out_ = 0;
  std::map<std::int32_t, std::string> damaged_;
  std::string doubt_;
};

void SegmentDecoder::Run::note_doubt(std::int32_t picture, const std::string& doubt) {
  if (doubt_.empty()) {
    doubt_ = doubt;
  }
  damaged_.emplace(picture, doubt);
}

void SegmentDecoder::Run::on_coded_unit(const AVCodedUnit& unit) {
  if (unit.picture == nullptr || sending_ < 0) {
    return;
  }
  lists_hash_ = hash_references(lists_hash_, unit, sending_, index_.packets());
  if (has_missing_reference(unit)) {
    note_doubt(sending_, "a reference is missing");
  }
  for (std::int32_t i = 0; i < unit.nb_references; ++i) {
    const AVCodedReference& reference = unit.references[i];
    const std::int32_t packet = packet_of(*reference.frame);
    if (reference.list < 0 || packet < 0) {
      continue;
    }
    const std::int32_t other = index_.packets()[static_cast<std::size_t>(packet)].picture;
    if (other != sending_) {
      on_reference(other, *reference.frame);
    }
  }
}

void SegmentDecoder::Run::on_reference(std::int32_t picture, const AVFrame& frame) {
  if (trust_ != Trust::kPlanned) {
    if (const std::string damage = damage_of(picture); !damage.empty()) {
      note_doubt(sending_, damage);
    }
  } else if (owner_.callbacks_.on_anchor && doubt_.empty() &&
             outcome_of(segment_, sending_) == Outcome::kReconstruct) {
    owner_.callbacks_.on_anchor(picture, frame);
  }
}

// Where a frame is lost, dav1d may predict from what its slot held before.
void SegmentDecoder::Run::inherit_damage(std::int32_t picture) {
  for (const std::int32_t reference : index_.graph().references(picture)) {
    if (const std::string damage = damage_of(reference); !damage.empty()) {
      note_doubt(picture, damage);
    }
  }
}

void SegmentDecoder::Run::take_frames() {
  const auto note_complaint = [this] {
    if (const std::string complaint = decoder_->take_complaint(); !complaint.empty()) {
      note_doubt(sending_, complaint);
    }
  };
  note_complaint();
  while (decoder_->receive(*frame_)) {
    note_complaint();
    const std::int32_t picture = shown_picture();
    if (frame_->decode_error_flags != 0) {
      note_doubt(picture, "the picture has decoding errors");
    }
    const bool trusted = trust_ == Trust::kPlanned ? doubt_.empty() : damage_of(picture).empty();
    const bool has_samples =
        (frame_->flags & (AV_FRAME_FLAG_STATE_ONLY | AV_FRAME_FLAG_RESTORED)) != AV_FRAME_FLAG_STATE_ONLY;
    if (trusted && has_samples && missing_.contains(picture)) {
      owner_.callbacks_.on_frame(picture, *frame_);
      missing_.erase(picture);
    }
  }
  note_complaint();
}

// Which picture the frame that came out shows, or -1.
std::int32_t SegmentDecoder::Run::shown_picture() {
  // Of AV1 frames the index counts those that the headers show; dav1d loses the damaged ones.
  const bool names_are_better = is_av1() && index_.frames_name_packets();
  if (trust_ == Trust::kSequential && !names_are_better) {
    const std::size_t number = frames_out_++;
    return number < index_.frames().size() ? index_.frames()[number].picture : -1;
  }
  const std::int32_t packet = packet_of(*frame_);
  const bool known = packet >= 0 && static_cast<std::size_t>(packet) < index_.packets().size();
  return known ? index_.packets()[static_cast<std::size_t>(packet)].picture : -1;
}

void SegmentDecoder::Run::send_packet(std::int32_t number, Outcome outcome) {
  const PacketRecord& record = index_.packets()[static_cast<std::size_t>(number)];
  const PictureRecord& picture = index_.pictures()[static_cast<std::size_t>(record.picture)];
  const std::span<const std::uint8_t> body =
      outcome == Outcome::kReconstruct ? reader_.read(number) : index_.state_bytes(record);
  // A decoder that starts in the middle of the stream is told what held there.
  const bool begins_picture = number == picture.first_packet;
  const bool begins_segment = begins_picture && record.picture == segment_.start && segment_.start > 0;
  std::vector<std::uint8_t> prefix;
  if (begins_segment) {
    prefix = index_.parameter_sets_before(record.picture);
  }
  std::span<const std::uint8_t> extradata;
  if (begins_segment || (begins_picture && index_.changes_extradata_at(record.picture))) {
    extradata = index_.extradata_at(record.picture);
  }
  av_packet_unref(packet_.get());
  const std::size_t size = prefix.size() + body.size();
  if (av_new_packet(packet_.get(), static_cast<int>(size)) < 0) {
    throw std::bad_alloc();
  }
  std::ranges::copy(prefix, packet_->data);
  std::ranges::copy(body, packet_->data + prefix.size());
  if (!extradata.empty()) {
    std::uint8_t* side =
        check_allocated(av_packet_new_side_data(packet_.get(), AV_PKT_DATA_NEW_EXTRADATA, extradata.size()));
    std::ranges::copy(extradata, side);
  }
  packet_->pts = record.pts;
  packet_->dts = record.dts;
  packet_->flags = outcome == Outcome::kReconstruct ? 0 : AV_PKT_FLAG_STATE_ONLY;
  if (outcome == Outcome::kRestore) {
    const AVFrame* anchor = owner_.anchors_.at(record.picture).get();
    const auto address = std::bit_cast<std::array<std::uint8_t, sizeof(void*)>>(anchor);
    std::uint8_t* side = check_allocated(
        av_packet_new_side_data(packet_.get(), AV_PKT_DATA_RECONSTRUCTED_PICTURE, address.size()));
    std::ranges::copy(address, side);
  }
  name_packet(*packet_, number);
  decoder_->send(packet_.get());
}

void SegmentDecoder::Run::send_picture(std::int32_t picture, Outcome outcome) {
  const PictureRecord& record = index_.pictures()[static_cast<std::size_t>(picture)];
  sending_ = picture;
  lists_hash_ = 0;
  if (!units_are_reported() && index_.codec_has_graph()) {
    inherit_damage(picture);
  }
  for (std::int32_t i = 0; i < record.packet_count; ++i) {
    send_packet(record.first_packet + i, outcome);
    if (i + 1 == record.packet_count) {
      check_references(picture, outcome);  // before its frame can come out
    }
    take_frames();
  }
}

void SegmentDecoder::Run::check_references(std::int32_t picture, Outcome outcome) {
  const PictureRecord& record = index_.pictures()[static_cast<std::size_t>(picture)];
  const bool needs_its_references =
      outcome == Outcome::kReconstruct ||
      (index_.traits()[static_cast<std::size_t>(picture)] & PictureTraits::kShowsExisting) != 0;
  if (needs_its_references && trust_ == Trust::kPlanned && folded(lists_hash_) != record.lists_hash) {
    note_doubt(picture, "a picture would predict from other pictures than it should");
  }
}

std::string SegmentDecoder::Run::execute() {
  if (trust_ != Trust::kSequential) {
    decoder_->set_reorder_depth(index_.reorder_depth());
    decoder_->set_x264_build(index_.x264_build());
  } else if (index_.first_reorder_depth() >= 0) {
    decoder_->set_reorder_depth(index_.first_reorder_depth());
  }
  if (needs_first_packet(index_, segment_)) {
    send_packet(0, Outcome::kReconstruct);
    take_frames();
    decoder_->flush();
    if (needs_packet_before(index_, segment_)) {
      send_packet(first_packet_of(index_, segment_) - 1, Outcome::kReconstruct);
      take_frames();
    }
    damaged_.clear();
    doubt_.clear();
  }
  for (std::int32_t picture = segment_.start; picture < segment_.stop() && !missing_.empty(); ++picture) {
    owner_.callbacks_.poll();
    const Outcome outcome = segment_.outcomes[static_cast<std::size_t>(picture - segment_.start)];
    switch (outcome) {
      case Outcome::kDrop:
        ++owner_.stats_.dropped;
        break;
      case Outcome::kStateOnly:
        ++owner_.stats_.state_only;
        send_picture(picture, outcome);
        break;
      case Outcome::kRestore:
        ++owner_.stats_.restored;
        send_picture(picture, outcome);
        break;
      case Outcome::kReconstruct:
        ++owner_.stats_.reconstructed;
        send_picture(picture, outcome);
        break;
    }
    if (trust_ == Trust::kPlanned && !doubt_.empty()) {
      return doubt_;
    }
  }
  if (!missing_.empty()) {
    sending_ = segment_.stop() - 1;
    decoder_->send(nullptr);
    take_frames();
  }
  if (!missing_.empty() && doubt_.empty()) {
    doubt_ = "the decoder did not show every frame that was asked for";
  }
  return doubt_;
}

std::string SegmentDecoder::Run::damage_of(std::int32_t picture) const {
  if (index_.codec_has_graph()) {
    const auto found = damaged_.find(picture);
    return found == damaged_.end() ? std::string() : found->second;
  }
  // Without a graph, everything up to the next start may predict from a damaged picture.
  const auto after = damaged_.upper_bound(picture);
  if (after == damaged_.begin()) {
    return {};
  }
  const auto& [damaged, cause] = *std::prev(after);
  for (std::int32_t other = damaged + 1; other <= picture; ++other) {
    if ((index_.traits()[static_cast<std::size_t>(other)] & PictureTraits::kStart) != 0) {
      return {};
    }
  }
  return cause;
}

SegmentDecoder::SegmentDecoder(ByteSource& source, const StreamIndex& index, const Anchors& anchors,
                               DecodeStats& stats, Callbacks callbacks)
    : source_(source), index_(index), anchors_(anchors), stats_(stats), callbacks_(std::move(callbacks)) {}

std::unique_ptr<PictureDecoder> SegmentDecoder::Run::release_decoder() {
  decoder_->report_units_to(nullptr);
  decoder_->flush();
  decoder_->take_complaint();
  return std::move(decoder_);
}

std::unique_ptr<PictureDecoder> SegmentDecoder::take_decoder(DecoderMode mode) {
  if (mode == DecoderMode::kSparse && idle_decoder_) {
    return std::move(idle_decoder_);
  }
  auto decoder = std::make_unique<PictureDecoder>(index_.parameters(), index_.time_base(), mode);
  if (mode == DecoderMode::kSparse && callbacks_.on_anchor) {
    decoder->export_picture_state();
  }
  return decoder;
}

bool SegmentDecoder::attempt(const Segment& segment, Trust trust, Wanted& wanted) {
  Run run(*this, segment, trust, wanted);
  const std::string doubt = run.execute();
  stats_.bytes_read += run.bytes_read();
  if (trust == Trust::kPlanned && doubt.empty()) {
    idle_decoder_ = run.release_decoder();
  }
  bool undecided = false;
  for (const std::int32_t picture : wanted) {
    const std::string damage = run.damage_of(picture);
    causes_[picture] = damage.empty() ? doubt : damage;
    undecided = undecided || damage.empty();
  }
  return undecided;
}

void SegmentDecoder::attempt_all(const Segment& segment, Wanted& missing) {
  const auto targets = [&] { return std::vector<std::int32_t>(missing.begin(), missing.end()); };
  bool undecided = true;
  if (index_.frames_name_packets()) {
    if (!segment.contiguous) {
      attempt(segment, Trust::kPlanned, missing);
      stats_.fallbacks += missing.empty() ? 0 : 1;
    }
    if (!missing.empty()) {
      const Segment whole = segment.contiguous ? segment : index_.planner().plan_contiguous(targets());
      undecided = attempt(whole, Trust::kContiguous, missing);
    }
  }
  if (!missing.empty() && undecided) {
    ++stats_.fallbacks;
    Segment all;
    all.targets = targets();
    all.start = index_.first_picture();
    all.outcomes.assign(static_cast<std::size_t>(all.targets.back() - all.start) + 1, Outcome::kReconstruct);
    attempt(all, Trust::kSequential, missing);
  }
}

void SegmentDecoder::decode(const Segment& segment) {
  Wanted missing(segment.targets.begin(), segment.targets.end());
  causes_.clear();
  try {
    attempt_all(segment, missing);
  } catch (const Error& error) {
    for (const std::int32_t picture : missing) {
      callbacks_.on_failure(picture, error);
    }
    return;
  }
  for (const std::int32_t picture : missing) {
    callbacks_.on_failure(picture, Error(ErrorKind::kDecode, causes_[picture]));
  }
}

}  // namespace sparsevideo
