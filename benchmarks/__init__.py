# SPDX-License-Identifier: Apache-2.0
"""What random access to robot video costs, this project beside its peers in one run: see README.md."""
