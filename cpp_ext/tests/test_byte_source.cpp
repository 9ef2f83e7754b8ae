// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "byte_source.h"
#include "check.h"
#include "error.h"

using sparsevideo::ByteSource;
using sparsevideo::Error;
using sparsevideo::ErrorKind;
using sparsevideo::FileSource;
using sparsevideo::MemorySource;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes counting_bytes(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  return bytes;
}

/// A folder that goes away with what is in it.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "byte-source-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

Bytes read(ByteSource& source, std::uint64_t offset, std::size_t size) {
  Bytes out(size, 0xEE);
  const std::size_t count = source.read_at(offset, out);
  CHECK(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                    [](std::uint8_t byte) { return byte == 0xEE; }));
  out.resize(count);
  return out;
}

Bytes part(const Bytes& bytes, std::size_t begin, std::size_t size) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

void check_reads(ByteSource& source, const Bytes& bytes) {
  CHECK(source.size_bytes() == bytes.size());
  CHECK(read(source, 0, bytes.size()) == bytes);
  CHECK(read(source, 100, 50) == part(bytes, 100, 50));
  CHECK(read(source, bytes.size() - 10, 50) == part(bytes, bytes.size() - 10, 10));
  CHECK(read(source, bytes.size(), 1).empty());
  CHECK(read(source, bytes.size() + 1000, 10).empty());
  CHECK(read(source, 5, 0).empty());
}

ErrorKind kind_of_error_when_opening(const std::string& path) {
  return thrown_by<Error>([&] { FileSource source(path); }).kind();
}

TEST(memory_is_read_anywhere_and_no_further_than_its_end) {
  const Bytes bytes = counting_bytes(1000);
  MemorySource source(bytes);
  check_reads(source, bytes);
  CHECK(read(source, std::numeric_limits<std::uint64_t>::max(), 10).empty());
  MemorySource empty({});
  CHECK(empty.size_bytes() == 0 && read(empty, 0, 1).empty());
}

TEST(a_file_is_read_anywhere_and_no_further_than_its_end) {
  const Folder folder;
  const Bytes bytes = counting_bytes(70'000);
  FileSource source(folder.write("a", bytes));
  check_reads(source, bytes);
}

TEST(reads_and_bytes_and_opens_are_counted) {
  const Folder folder;
  FileSource source(folder.write("a", counting_bytes(1000)));
  CHECK(source.opens() == 1 && source.reads() == 0 && source.bytes_read() == 0);
  read(source, 0, 10);
  read(source, 990, 10);
  CHECK(source.reads() == 2 && source.bytes_read() == 20);
  read(source, 990, 20);  // asks again to learn that there is no more
  CHECK(source.reads() == 4 && source.bytes_read() == 30);
  CHECK(source.opens() == 1);
}

TEST(short_reads_are_continued) {
  class Dripping final : public ByteSource {
   public:
    [[nodiscard]] std::uint64_t size_bytes() const override { return 10; }

   private:
    std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) override {
      if (offset >= 10) {
        return 0;
      }
      out[0] = static_cast<std::uint8_t>(offset);
      return 1;
    }
  };
  Dripping source;
  CHECK(read(source, 3, 4) == (Bytes{3, 4, 5, 6}));
  CHECK(read(source, 8, 4) == (Bytes{8, 9}));
  CHECK(source.bytes_read() == 6 && source.reads() == 7);
}

TEST(a_closed_file_holds_no_descriptor_and_opens_itself_at_the_next_read) {
  const Folder folder;
  const Bytes bytes = counting_bytes(1000);
  const std::ptrdiff_t before = open_descriptors();
  {
    FileSource source(folder.write("a", bytes));
    CHECK(open_descriptors() == before + 1);
    source.close();
    source.close();
    CHECK(open_descriptors() == before);
    CHECK(read(source, 10, 20) == part(bytes, 10, 20));
    CHECK(source.opens() == 2);
    CHECK(open_descriptors() == before + 1);
  }
  CHECK(open_descriptors() == before);
}

TEST(a_file_that_changed_while_it_was_closed_is_an_error) {
  const Folder folder;
  const std::string path = folder.write("a", counting_bytes(1000));
  const std::ptrdiff_t before = open_descriptors();
  FileSource source(path);
  source.close();
  const auto fails = [&] { return thrown_by<Error>([&] { read(source, 0, 10); }).kind(); };
  (void)folder.write("a", counting_bytes(1001));  // another size
  CHECK(fails() == ErrorKind::kRead);
  CHECK(fails() == ErrorKind::kRead);  // not only the first time
  (void)folder.write("a", counting_bytes(1000));
  const timespec times[2] = {{0, UTIME_OMIT}, {1'000'000'000, 1}};  // another time of change
  CHECK(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  CHECK(fails() == ErrorKind::kRead);
  std::filesystem::remove(path);
  CHECK(fails() == ErrorKind::kNotFound);
  CHECK(open_descriptors() == before);
}

TEST(a_file_that_is_replaced_while_it_is_open_goes_on_being_read) {
  const Folder folder;
  const Bytes bytes = counting_bytes(1000);
  FileSource source(folder.write("a", bytes));
  std::filesystem::rename(folder.write("b", Bytes(1000)), folder.path("a"));
  CHECK(read(source, 0, 1000) == bytes);
}

TEST(what_is_not_a_readable_file_is_told_apart) {
  const Folder folder;
  const std::ptrdiff_t before = open_descriptors();
  CHECK(kind_of_error_when_opening(folder.path("missing")) == ErrorKind::kNotFound);
  CHECK(kind_of_error_when_opening(folder.write("a", {1}) + "/inside-a-file") == ErrorKind::kNotFound);
  CHECK(kind_of_error_when_opening("") == ErrorKind::kNotFound);
  CHECK(kind_of_error_when_opening(folder.path(".")) == ErrorKind::kRead);
  CHECK(kind_of_error_when_opening("/dev/null") == ErrorKind::kRead);
  CHECK(open_descriptors() == before);
}

TEST(an_offset_that_no_file_has_is_an_error_or_the_end) {
  const Folder folder;
  FileSource source(folder.write("a", counting_bytes(10)));
  CHECK(thrown_by<Error>([&] { read(source, std::uint64_t{1} << 63U, 10); }).kind() == ErrorKind::kRead);
  CHECK(read(source, 0, 10) == counting_bytes(10));
}

TEST(threads_share_a_file_while_it_is_closed_under_them) {
  const Folder folder;
  const Bytes bytes = counting_bytes(50'000);
  FileSource source(folder.write("a", bytes));
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = 0; i < 500; ++i) {
          const std::size_t begin = (i * 977 + thread * 131) % 49'000;
          Bytes out(1000);
          wrong += source.read_at(begin, out) == 1000 && out == part(bytes, begin, 1000) ? 0 : 1;
          if (i % 10 == 0) {
            source.close();
          }
        }
      });
    }
  }
  CHECK(wrong == 0);
  CHECK(source.bytes_read() == 4 * 500 * 1000);
  CHECK(source.opens() > 1);
}

}  // namespace
