// Sets of n points with k coordinates: their means, their cross-covariance, what a fit consists of, and the gradient with respect to the points. autograd/polar/point_sets.py has the derivation. One set after another: the compiler
// unrolls the loops over the coordinates for k = 2 and 3, the usual cases.
#pragma once
#include <limits>

#include "../interface.hpp"

namespace SG_NS {
namespace {

constexpr int most_coordinates = 16;

template <class T, int K> struct Points {
  const sg::PointTask<T> t;  // a copy: what is written through its pointers cannot change it
  const int k = K ? K : t.k;
  static constexpr int most = K ? K : most_coordinates;

  // Reads k numbers, or zeros.
  void read(const T* from, int64_t b, T* to, int count, T factor = 1) const {
    for (int j = 0; j < count; j++) to[j] = from ? factor * from[b * count + j] : T(0);
  }

  // C = Σ w (y − ȳ)(x − x̄)ᵀ, and the means unless they are null.
  void cross(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T total = 0, x[most] = {}, y[most] = {}, C[most * most] = {};
    if (t.x) {
      for (int i = 0; i < t.n; i++) {
        const T one = w ? w[i] : T(1);
        total += one;
        for (int j = 0; j < k; j++) {
          x[j] += one * X[i * k + j];
          y[j] += one * Y[i * k + j];
        }
      }
      const bool any = total > 0;
      for (int j = 0; j < k; j++) {
        x[j] = any ? x[j] / total : T(0);
        y[j] = any ? y[j] / total : T(0);
        t.x[b * k + j] = x[j];
        t.y[b * k + j] = y[j];
      }
    }
    for (int i = 0; i < t.n; i++) {
      const T one = w ? w[i] : T(1);
      for (int j = 0; j < k; j++) {
        const T far = one * (Y[i * k + j] - y[j]);
        for (int l = 0; l < k; l++) C[j * k + l] += far * (X[i * k + l] - x[l]);
      }
    }
    for (int j = 0; j < k * k; j++) t.C[b * k * k + j] = C[j];
  }

  // The scale s = ⟨R, C⟩/a with a = Σ w ‖x − x̄‖², 1 where a is zero, or if s is null; the translation t = ȳ − s R x̄; the
  // distance e = Σ w ‖s R (x − x̄) − (y − ȳ)‖², and the margin, which says how well R is determined.
  void fit(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T e = 0, x[most], y[most], R[most * most];
    read(t.x, b, x, k);
    read(t.y, b, y, k);
    read(t.R, b, R, k * k);
    if (t.s) {
      double spread = 0, overlap = 0;
      for (int i = 0; i < t.n; i++) {
        double one = 0;
        for (int j = 0; j < k; j++) one += (double)(X[i * k + j] - x[j]) * (double)(X[i * k + j] - x[j]);
        spread += w ? (double)w[i] * one : one;
      }
      for (int j = 0; j < k * k; j++) overlap += (double)R[j] * (double)t.C[b * k * k + j];
      t.s[b] = spread > 0 ? (T)(overlap / spread) : T(1);
      t.spread[b] = (T)spread;
      for (int j = 0; j < k * k; j++) R[j] *= t.s[b];
    }
    for (int j = 0; t.t && j < k; j++) {
      T turned = 0;
      for (int l = 0; l < k; l++) turned += R[j * k + l] * x[l];
      t.t[b * k + j] = y[j] - turned;
    }
    for (int i = 0; i < t.n; i++) {
      T one = 0;
      for (int j = 0; j < k; j++) {
        T miss = y[j] - Y[i * k + j];
        for (int l = 0; l < k; l++) miss += R[j * k + l] * (X[i * k + l] - x[l]);
        one += miss * miss;
      }
      e += w ? w[i] * one : one;
    }
    t.e[b] = e;
    const T *h = t.h + b * k, top = h[0] > std::numeric_limits<T>::min() ? h[0] : std::numeric_limits<T>::min();
    if (!t.special) t.margin[b] = h[k - 1] / top;
    else t.margin[b] = k == 1 ? T(1) : (h[k - 2] + h[k - 1]) / top;
  }

  // x̄_i = w Cᵀ (y_i − ȳ) + w/W gx and ȳ_i = w C (x_i − x̄) + w/W gy, where C is the gradient of the cross-covariance.
  void pull(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T *gX = t.gX + b * t.n * k, *gY = t.gY + b * t.n * k, *gw = t.gw ? t.gw + b * t.n : nullptr;
    T total = w ? T(0) : T(t.n), x[most], y[most], gx[most], gy[most], C[most * most];
    for (int i = 0; w && i < t.n; i++) total += w[i];
    const T share = total > 0 ? 1 / total : T(0);
    read(t.x, b, x, k);
    read(t.y, b, y, k);
    read(t.C, b, C, k * k);
    read(t.gx, b, gx, k, share);
    read(t.gy, b, gy, k, share);
    for (int i = 0; i < t.n; i++) {
      T near[most], far[most], slope = 0;
      for (int j = 0; j < k; j++) {
        near[j] = X[i * k + j] - x[j];
        far[j] = Y[i * k + j] - y[j];
      }
      const T one = w ? w[i] : T(1);
      for (int j = 0; j < k; j++) {
        T of_x = gx[j], of_y = gy[j];
        for (int l = 0; l < k; l++) {
          of_x += C[l * k + j] * far[l];
          of_y += C[j * k + l] * near[l];
        }
        gX[i * k + j] = one * of_x;
        gY[i * k + j] = one * of_y;
        slope += far[j] * of_y + near[j] * gx[j];
      }
      if (gw) gw[i] = slope;
    }
  }
};

// step: called with the points of each set.
template <class T, class Step> void each_set(const sg::PointTask<T>& t, Step step) {
  auto sets = [&](auto points) {
    for (int64_t b = t.first; b < t.first + t.count; b++) step(points, b);
  };
  if (t.k == 2) sets(Points<T, 2>{t});
  else if (t.k == 3) sets(Points<T, 3>{t});
  else sets(Points<T, 0>{t});
}
template <class T> void point_moments(const sg::PointTask<T>& t) {
  each_set(t, [](const auto& points, int64_t b) { points.cross(b); });
}
template <class T> void point_fit(const sg::PointTask<T>& t) {
  each_set(t, [](const auto& points, int64_t b) { points.fit(b); });
}
template <class T> void point_gradient(const sg::PointTask<T>& t) {
  each_set(t, [](const auto& points, int64_t b) { points.pull(b); });
}

}  // namespace
}  // namespace SG_NS
