# SPDX-License-Identifier: Apache-2.0
"""What the monitors of a running job decide and exchange."""
