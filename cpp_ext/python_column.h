// SPDX-License-Identifier: Apache-2.0
// Rows of the core as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <ranges>
#include <vector>

namespace sparsevideo {

template <typename T>
using Column = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

/// A new NumPy array of project(row) for every row.
template <typename T, typename Rows, typename Project>
Column<T> make_column(const Rows& rows, Project project) {
  auto values = std::make_unique<std::vector<T>>();
  values->reserve(std::ranges::size(rows));
  for (const auto& row : rows) {
    values->push_back(static_cast<T>(std::invoke(project, row)));
  }
  T* data = values->data();
  const std::size_t size = values->size();
  const nanobind::capsule owner(values.release(), [](void* vector) noexcept {
    const std::unique_ptr<std::vector<T>> last_owner(static_cast<std::vector<T>*>(vector));
  });
  return Column<T>(data, {size}, owner);
}

/// A property that is a new array each time.
template <typename Class, typename Make>
void define_column(nanobind::class_<Class>& type, const char* name, Make make) {
  type.def_prop_ro(name, make, nanobind::rv_policy::move);
}

}  // namespace sparsevideo
