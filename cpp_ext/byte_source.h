// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace sparsevideo {

/// Random access to the bytes of one shard. Reads may run on several threads at once.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Reads up to out.size() bytes; fewer only at the end of the source.
  std::size_t read_at(std::uint64_t offset, std::span<std::uint8_t> out);

  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;

  /// Gives back what the system counts (a descriptor); the next read takes it again.
  virtual void close() {}

  [[nodiscard]] std::uint64_t reads() const { return reads_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] std::uint64_t opens() const { return opens_; }

 protected:
  virtual std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) = 0;
  void count_open() { ++opens_; }

 private:
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> bytes_read_ = 0;
  std::atomic<std::uint64_t> opens_ = 0;
};

/// A local file, read by pread so that threads and forked processes share no position.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(std::string path);
  [[nodiscard]] std::uint64_t size_bytes() const override { return identity_.size_bytes; }
  void close() override;

 private:
  struct Descriptor;
  struct Identity {
    std::uint64_t size_bytes = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) override;
  std::shared_ptr<const Descriptor> descriptor();

  std::string path_;
  Identity identity_;
  std::mutex mutex_;
  std::shared_ptr<const Descriptor> descriptor_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size_bytes() const override { return bytes_.size(); }

 private:
  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) override;

  std::vector<std::uint8_t> bytes_;
};

}  // namespace sparsevideo
