// SPDX-License-Identifier: Apache-2.0
#include "byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"

namespace sparsevideo {

std::size_t ByteSource::read_at(std::uint64_t offset, std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t count = read_some(offset + done, out.subspan(done));
    ++reads_;
    if (count == 0) {
      break;
    }
    done += count;
  }
  bytes_read_ += done;
  return done;
}

struct FileSource::Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd); }
  const int fd;
};

FileSource::FileSource(std::string path) : path_(std::move(path)) { descriptor(); }

std::shared_ptr<const FileSource::Descriptor> FileSource::descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_) {
    return descriptor_;
  }
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(missing ? ErrorKind::kNotFound : ErrorKind::kRead, std::strerror(errno));
  }
  auto opened = std::make_shared<const Descriptor>(fd);
  count_open();
  struct stat status = {};
  if (::fstat(fd, &status) != 0) {
    throw Error(ErrorKind::kRead, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::kRead, "not a regular file");
  }
  const Identity identity{static_cast<std::uint64_t>(status.st_size),
                          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  if (opens() == 1) {
    identity_ = identity;
  } else if (identity != identity_) {
    throw Error(ErrorKind::kRead, "the file changed since it was indexed");
  }
  descriptor_ = opened;
  return opened;
}

void FileSource::close() {
  const std::lock_guard lock(mutex_);
  descriptor_.reset();
}

std::size_t FileSource::read_some(std::uint64_t offset, std::span<std::uint8_t> out) {
  const auto opened = descriptor();
  while (true) {
    const ssize_t count = ::pread(opened->fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (count >= 0) {
      return static_cast<std::size_t>(count);
    }
    if (errno != EINTR) {
      throw Error(ErrorKind::kRead, std::strerror(errno));
    }
  }
}

std::size_t MemorySource::read_some(std::uint64_t offset, std::span<std::uint8_t> out) {
  if (offset >= bytes_.size()) {
    return 0;
  }
  const std::size_t count = std::min<std::size_t>(out.size(), bytes_.size() - offset);
  std::memcpy(out.data(), bytes_.data() + offset, count);
  return count;
}

}  // namespace sparsevideo
