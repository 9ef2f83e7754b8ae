// SPDX-License-Identifier: Apache-2.0
// What is left of a packet when only its headers matter, byte for byte.
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <random>

#include "check.h"
#include "state_packet.h"

using sparsevideo::CodecParametersPtr;
using sparsevideo::StatePacketWriter;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

const Bytes kLongStartCode = {0, 0, 0, 1};
const Bytes kStartCode = {0, 0, 1};
const Bytes kSei = {0x06, 0x05, 0x02, 0xAA, 0xBB, 0x80};
const Bytes kSlice = {0x41, 0x9A, 0x21, 0x6C, 0x41, 0xF3, 0x77};
const Bytes kOtherSlice = {0x41, 0x58, 0x46, 0x9B, 0x10};

/// Extradata as MP4 has it: units follow their size in `length_bytes` bytes. 0: start codes.
Bytes extradata_for(AVCodecID codec, std::size_t length_bytes) {
  if (length_bytes == 0) {
    return joined({kLongStartCode, {0x67, 0x64, 0x00, 0x0A, 0xAC, 0xD9}});
  }
  Bytes extradata(codec == AV_CODEC_ID_H264 ? 7 : 23);
  extradata[0] = 1;
  extradata[codec == AV_CODEC_ID_H264 ? 4 : 21] = static_cast<std::uint8_t>(0xFC | (length_bytes - 1));
  return extradata;
}

StatePacketWriter make_writer(AVCodecID codec, const Bytes& extradata) {
  const CodecParametersPtr parameters(sparsevideo::check_allocated(avcodec_parameters_alloc()));
  parameters->codec_id = codec;
  parameters->extradata = static_cast<std::uint8_t*>(
      sparsevideo::check_allocated(av_mallocz(extradata.size() + AV_INPUT_BUFFER_PADDING_SIZE)));
  std::ranges::copy(extradata, parameters->extradata);
  parameters->extradata_size = static_cast<int>(extradata.size());
  return StatePacketWriter(*parameters);
}

StatePacketWriter make_writer(std::size_t length_bytes) {
  return make_writer(AV_CODEC_ID_H264, extradata_for(AV_CODEC_ID_H264, length_bytes));
}

Bytes sized(const Bytes& unit, std::size_t length_bytes) {
  Bytes all(length_bytes);
  for (std::size_t i = 0; i < length_bytes; ++i) {
    all[i] = static_cast<std::uint8_t>(unit.size() >> (8 * (length_bytes - 1 - i)));
  }
  return joined({all, unit});
}

void add_slice(StatePacketWriter& writer, const Bytes& packet, std::size_t begin, std::size_t size,
               int header_size) {
  AVCodedUnit unit = {};
  unit.data = packet.data() + begin;
  unit.size = static_cast<int>(size);
  unit.header_size = header_size;
  writer.add_slice(unit, packet);
}

/// Notes that `slice` lies in `packet`, and that its header has `header_size` bytes before escaping.
void add_slice(StatePacketWriter& writer, const Bytes& packet, const Bytes& slice, int header_size) {
  const auto found = std::ranges::search(packet, slice);
  CHECK(found.size() == slice.size());
  add_slice(writer, packet, static_cast<std::size_t>(found.begin() - packet.begin()), slice.size(),
            header_size);
}

Bytes written(StatePacketWriter& writer, const Bytes& packet) {
  Bytes out;
  writer.write(packet, out);
  return out;
}

TEST(a_slice_between_start_codes_keeps_its_header_and_gets_a_stop_bit) {
  StatePacketWriter writer = make_writer(0);
  const Bytes packet = joined({kStartCode, kSlice});
  add_slice(writer, packet, kSlice, 3);
  CHECK(written(writer, packet) == joined({kStartCode, {0x41, 0x9A, 0x21, 0x80}}));
}

TEST(a_slice_after_its_size_keeps_its_header_and_gets_its_new_size) {
  for (const AVCodecID codec : {AV_CODEC_ID_H264, AV_CODEC_ID_HEVC}) {
    for (const std::size_t length_bytes : {1U, 2U, 3U, 4U}) {
      StatePacketWriter writer = make_writer(codec, extradata_for(codec, length_bytes));
      const Bytes packet = sized(kSlice, length_bytes);
      add_slice(writer, packet, kSlice, 3);
      CHECK(written(writer, packet) == sized({0x41, 0x9A, 0x21, 0x80}, length_bytes), length_bytes, " bytes");
    }
  }
}

TEST(what_is_not_a_slice_stays_as_it_is) {
  StatePacketWriter writer = make_writer(0);
  const Bytes packet =
      joined({kLongStartCode, kSei, kLongStartCode, kSlice, kStartCode, kSei, {0, 0}, kStartCode, kSei});
  add_slice(writer, packet, kSlice, 2);
  CHECK(written(writer, packet) == joined({kLongStartCode,
                                           kSei,
                                           kLongStartCode,
                                           {0x41, 0x9A, 0x80},
                                           kStartCode,
                                           kSei,
                                           {0, 0},
                                           kStartCode,
                                           kSei}));

  for (const std::size_t length_bytes : {1U, 2U, 4U}) {
    StatePacketWriter sized_writer = make_writer(length_bytes);
    const Bytes sei = sized(kSei, length_bytes);
    const Bytes sized_packet = joined({sei, sized(kSlice, length_bytes), sei, sei});
    add_slice(sized_writer, sized_packet, kSlice, 2);
    CHECK(written(sized_writer, sized_packet) ==
          joined({sei, sized({0x41, 0x9A, 0x80}, length_bytes), sei, sei}));
  }
}

TEST(of_av1_packets_only_those_that_show_an_existing_frame_are_kept) {
  StatePacketWriter writer = make_writer(AV_CODEC_ID_AV1, {0x81, 0x00, 0x0C, 0x00});
  const Bytes packet = {0x12, 0x00, 0x1A, 0x01, 0xA8};  // a temporal delimiter and a frame header
  AVCodedUnit unit = {};
  unit.data = packet.data() + 2;
  unit.size = 3;
  unit.flags = AV_CODED_UNIT_SHOW_EXISTING;
  writer.add_slice(unit, packet);
  CHECK(written(writer, packet) == packet);
  unit.flags = 0;
  writer.add_slice(unit, packet);
  CHECK(written(writer, packet).empty());
  CHECK(written(writer, packet).empty(), "a packet without a frame");
  Bytes out;
  writer.write_unit({packet.data(), 2}, out);
  CHECK(out == Bytes({0x12, 0x00}), "an OBU needs no start code");
}

TEST(every_slice_of_a_picture_is_cut_by_itself) {
  StatePacketWriter writer = make_writer(0);
  const Bytes packet = joined({kLongStartCode, kSlice, kStartCode, kSei, kStartCode, kOtherSlice});
  add_slice(writer, packet, kSlice, 4);
  add_slice(writer, packet, kOtherSlice, 2);
  CHECK(written(writer, packet) == joined({kLongStartCode,
                                           {0x41, 0x9A, 0x21, 0x6C, 0x80},
                                           kStartCode,
                                           kSei,
                                           kStartCode,
                                           {0x41, 0x58, 0x80}}));

  StatePacketWriter sized_writer = make_writer(2);
  const Bytes sized_packet = joined({sized(kSlice, 2), sized(kSei, 2), sized(kOtherSlice, 2)});
  add_slice(sized_writer, sized_packet, kSlice, 4);
  add_slice(sized_writer, sized_packet, kOtherSlice, 2);
  CHECK(written(sized_writer, sized_packet) ==
        joined({sized({0x41, 0x9A, 0x21, 0x6C, 0x80}, 2), sized(kSei, 2), sized({0x41, 0x58, 0x80}, 2)}));
}

TEST(emulation_prevention_bytes_of_the_header_do_not_count_but_stay) {
  const Bytes slice = {0x41, 0x00, 0x00, 0x03, 0x01, 0x00, 0x00, 0x03,
                       0x00, 0x03, 0x00, 0x00, 0x03, 0x02, 0x55};
  const Bytes heads[] = {
      {0x41},
      {0x41, 0x00},
      {0x41, 0x00, 0x00},  // the header ends before the 3: the stop bit needs no escaping
      {0x41, 0x00, 0x00, 0x03, 0x01},
      {0x41, 0x00, 0x00, 0x03, 0x01, 0x00},
      {0x41, 0x00, 0x00, 0x03, 0x01, 0x00, 0x00},
      {0x41, 0x00, 0x00, 0x03, 0x01, 0x00, 0x00, 0x03, 0x00},
      {0x41, 0x00, 0x00, 0x03, 0x01, 0x00, 0x00, 0x03, 0x00,
       0x03},  // a 3 after one zero is a byte like others
  };
  for (const std::size_t length_bytes : {0U, 4U}) {
    StatePacketWriter writer = make_writer(length_bytes);
    const Bytes packet = length_bytes == 0 ? joined({kStartCode, slice}) : sized(slice, length_bytes);
    for (std::size_t header_size = 1; header_size <= std::size(heads); ++header_size) {
      add_slice(writer, packet, slice, static_cast<int>(header_size));
      const Bytes cut = joined({heads[header_size - 1], {0x80}});
      CHECK(written(writer, packet) ==
                (length_bytes == 0 ? joined({kStartCode, cut}) : sized(cut, length_bytes)),
            "header of ", header_size, " bytes");
    }
  }
}

TEST(a_slice_that_a_cut_would_not_make_shorter_stays_whole) {
  for (const std::size_t length_bytes : {0U, 2U}) {
    StatePacketWriter writer = make_writer(length_bytes);
    const Bytes packet = length_bytes == 0 ? joined({kStartCode, kSlice}) : sized(kSlice, length_bytes);
    const int size = static_cast<int>(kSlice.size());
    for (const int header_size : {size - 1, size, size + 1, 1000}) {
      add_slice(writer, packet, kSlice, header_size);
      CHECK(written(writer, packet) == packet, "header of ", header_size, " bytes");
    }
  }
}

TEST(a_packet_without_slices_stays_whole) {
  StatePacketWriter writer = make_writer(0);
  CHECK(written(writer, joined({kStartCode, kSei})) == joined({kStartCode, kSei}));
  CHECK(written(writer, {}).empty());
}

TEST(a_packet_whose_framing_is_not_understood_stays_whole_and_is_forgotten) {
  const Bytes good_start_codes = joined({kStartCode, kSlice, kStartCode, kOtherSlice});
  StatePacketWriter writer = make_writer(0);
  const auto refuses = [&](const Bytes& packet) {
    add_slice(writer, packet, kSlice, 2);
    add_slice(writer, packet, kOtherSlice, 2);
    CHECK(written(writer, packet) == packet);
    add_slice(writer, good_start_codes, kSlice, 2);
    add_slice(writer, good_start_codes, kOtherSlice, 2);
    CHECK(written(writer, good_start_codes) ==
          joined({kStartCode, {0x41, 0x9A, 0x80}, kStartCode, {0x41, 0x58, 0x80}}));
  };
  refuses(joined({kSlice, kStartCode, kOtherSlice}));
  refuses(joined({{0, 1}, kSlice, kStartCode, kOtherSlice}));
  refuses(joined({{0, 0, 2}, kSlice, kStartCode, kOtherSlice}));
  refuses(
      joined({kStartCode, kSlice, {0, 1, 1}, kOtherSlice}));  // the first slice is fine, the second is not
  refuses(joined({kStartCode, kOtherSlice, kStartCode, kSlice}));  // not in the order of their bytes
}

TEST(a_packet_with_wrong_sizes_stays_whole) {
  for (const std::size_t length_bytes : {1U, 2U, 4U}) {
    StatePacketWriter writer = make_writer(length_bytes);
    for (const int wrong : {-1, 1}) {
      Bytes packet = joined({sized(kSlice, length_bytes), sized(kOtherSlice, length_bytes)});
      std::uint8_t& last_size_byte = packet[length_bytes + kSlice.size() + length_bytes - 1];
      last_size_byte = static_cast<std::uint8_t>(last_size_byte + wrong);
      add_slice(writer, packet, kSlice, 2);
      add_slice(writer, packet, kOtherSlice, 2);
      CHECK(written(writer, packet) == packet, length_bytes, " bytes");
    }
    const Bytes annex_b = joined({kLongStartCode, kSlice});
    add_slice(writer, annex_b, kSlice, 2);
    CHECK(written(writer, annex_b) == annex_b);
  }
}

TEST(a_slice_from_elsewhere_leaves_the_packet_whole) {
  StatePacketWriter writer = make_writer(0);
  const Bytes all = joined({kStartCode, kSlice, kStartCode, kOtherSlice});
  const std::size_t half = kStartCode.size() + kSlice.size();
  const Bytes elsewhere = all;
  const auto packet = std::span(all).subspan(half);
  const auto refuses = [&](const std::uint8_t* data, std::size_t size) {
    AVCodedUnit unit = {};
    unit.data = data;
    unit.size = static_cast<int>(size);
    unit.header_size = 2;
    writer.add_slice(unit, packet);
    Bytes out;
    writer.write(packet, out);
    CHECK(std::ranges::equal(out, packet));
  };
  refuses(elsewhere.data() + half + kStartCode.size(), kOtherSlice.size());
  refuses(all.data() + kStartCode.size(), kSlice.size());              // before it
  refuses(packet.data() + kStartCode.size(), kOtherSlice.size() + 1);  // past its end
  refuses(packet.data() + packet.size() + 1, 1);                       // behind it
}

TEST(headers_are_appended_to_what_is_there) {
  StatePacketWriter writer = make_writer(0);
  const Bytes packet = joined({kStartCode, kSlice});
  Bytes out = {1, 2, 3};
  add_slice(writer, packet, kSlice, 1);
  writer.write(packet, out);
  CHECK(out == joined({{1, 2, 3}, kStartCode, {0x41, 0x80}}));
  add_slice(writer, packet, 1, 1, 1);  // refused: what was there before stays all the same
  writer.write(packet, out);
  CHECK(out == joined({{1, 2, 3}, kStartCode, {0x41, 0x80}, packet}));
}

TEST(new_extradata_changes_the_framing) {
  StatePacketWriter writer = make_writer(4);
  const auto cuts = [&](std::size_t length_bytes) {
    const Bytes packet = length_bytes == 0 ? joined({kStartCode, kSlice}) : sized(kSlice, length_bytes);
    add_slice(writer, packet, kSlice, 1);
    return written(writer, packet).size() == packet.size() - kSlice.size() + 2;
  };
  CHECK(cuts(4) && !cuts(2) && !cuts(0));
  writer.set_extradata(extradata_for(AV_CODEC_ID_H264, 2));
  CHECK(cuts(2) && !cuts(0));
  writer.set_extradata(extradata_for(AV_CODEC_ID_H264, 0));
  CHECK(cuts(0) && !cuts(4) && !cuts(2));
  writer.set_extradata(extradata_for(AV_CODEC_ID_H264, 2));
  writer.set_extradata({});  // none at all: start codes
  CHECK(cuts(0) && !cuts(2));
}

TEST(a_unit_is_written_in_the_framing_of_the_stream) {
  for (const std::size_t length_bytes : {1U, 2U, 3U, 4U}) {
    Bytes out = {9};
    make_writer(length_bytes).write_unit(kSei, out);
    CHECK(out == joined({{9}, sized(kSei, length_bytes)}), length_bytes, " bytes");
  }
  Bytes out = {9};
  make_writer(0).write_unit(kSei, out);
  CHECK(out == joined({{9}, kLongStartCode, kSei}));
}

Bytes escaped(const Bytes& payload) {
  Bytes out;
  for (const std::uint8_t byte : payload) {
    const std::size_t size = out.size();
    if (size >= 2 && out[size - 1] == 0 && out[size - 2] == 0 && byte <= 3) {
      out.push_back(3);
    }
    out.push_back(byte);
  }
  return out;
}

TEST(random_packets_lose_nothing_but_the_data_of_their_slices) {
  std::mt19937 random(1);
  const auto below = [&](unsigned end) { return random() % end; };
  for (int i = 0; i < 3000; ++i) {
    const std::size_t length_bytes = below(3) * 2;
    StatePacketWriter writer = make_writer(length_bytes);
    Bytes packet;
    Bytes expected;
    struct Slice {
      std::size_t begin, size;
      int header_size;
    };
    std::vector<Slice> slices;
    for (unsigned units = below(6); units > 0; --units) {
      Bytes payload = {0x41};
      for (unsigned left = 2 + below(60); left > 0; --left) {
        payload.push_back(static_cast<std::uint8_t>(below(3) == 0 ? below(256) : below(5)));
      }
      payload.push_back(static_cast<std::uint8_t>(1 + below(255)));
      const Bytes unit = escaped(payload);
      const auto frame = [&](const Bytes& bytes) {
        return length_bytes > 0 ? sized(bytes, length_bytes) : joined({kStartCode, bytes});
      };
      Bytes kept = unit;
      if (below(3) > 0) {
        const std::size_t header_size = 1 + below(static_cast<unsigned>(payload.size()));
        const Bytes cut =
            escaped(Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(header_size)));
        slices.push_back(
            {packet.size() + frame(unit).size() - unit.size(), unit.size(), static_cast<int>(header_size)});
        kept = cut.size() + 1 < unit.size() ? joined({cut, {0x80}}) : unit;
      }
      packet = joined({packet, frame(unit)});
      expected = joined({expected, frame(kept)});
    }
    for (const Slice& slice : slices) {
      add_slice(writer, packet, slice.begin, slice.size, slice.header_size);
    }
    CHECK(written(writer, packet) == expected, "packet ", i, ", sizes of ", length_bytes, " bytes");
  }
}

}  // namespace
